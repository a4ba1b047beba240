// The arguments of a call from Python as words: of a tensor its rank, device, dtype, shape and
// strides, and its address beside them; of a number its type and bits.
//
// Tensors are read through the exchange table of their type where it has one (DLPack 1.3,
// `DLPackExchangeAPI`): one call of C a tensor, and one for the current stream. Else their
// attributes are asked for.

#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

namespace {

constexpr int kMostWords = 256;     // of a call
constexpr int kMostArguments = 32;  // given, or made
constexpr int64_t kCuda = 2;        // kDLCUDA

struct DlDevice {
  int32_t type, index;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t rank;
  DlType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlExchange {
  uint32_t major, minor;
  const DlExchange* previous;
  void* allocate;
  void* managed_from_object;
  void* object_from_managed;
  int (*view)(void* object, DlTensor* out);
  int (*current_stream)(int32_t device_type, int32_t device, void** stream);
};

/// The table of a capsule in the version known here; null where there is none.
const DlExchange* exchange_of(PyObject* capsule) {
  const char* name = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule, name)) return nullptr;
  auto* table = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule, name));
  while (table && table->major != 1) table = table->previous;
  const bool known = table && table->minor >= 3 && table->view && table->current_stream;
  return known ? table : nullptr;
}

/// How tensors are told and read.
struct Reader {
  PyObject *tensor, *parameter;  // their types
  const DlExchange* exchange;    // or null

  bool is_tensor(PyObject* value) const {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
    return type == tensor || type == parameter;
  }
};

// Interned.
PyObject *name_shape, *name_stride, *name_dtype, *name_get_device, *name_data_ptr;

/// The arguments of a call as they were read.
struct Call {
  int words = 0, tensors = 0;
  int64_t key[kMostWords];
  uint64_t addresses[kMostArguments];
  PyObject* dtypes = nullptr;  // a list to put dtypes into, where they are wanted

  bool put(int64_t word) {
    if (words == kMostWords) return false;
    key[words++] = word;
    return true;
  }
};

enum Kind : int64_t { kTensor = 1, kInteger, kFloat, kBool };

int64_t tensor_of_rank(Py_ssize_t rank) { return int64_t{rank} << 8 | kTensor; }

PyObject* ask(PyObject* object, PyObject* method) {
  PyObject* arguments[] = {object};
  return PyObject_VectorcallMethod(method, arguments, 1, nullptr);
}

/// A number that an object's method gives; -1 with an exception where it gives none.
int64_t ask_number(PyObject* object, PyObject* method) {
  PyObject* found = ask(object, method);
  if (!found) return -1;
  const int64_t number = PyLong_AsLongLong(found);
  Py_DECREF(found);
  return number;
}

/// An integer as a word. False where it is wider.
bool put_integer(PyObject* value, Call* call) {
  int overflow = 0;
  return call->put(PyLong_AsLongLongAndOverflow(value, &overflow)) && !overflow;
}

/// The numbers of a tuple as words. False where they are none.
bool put_numbers(PyObject* tuple, Py_ssize_t rank, Call* call) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != rank) return false;
  for (Py_ssize_t i = 0; i < rank; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (!PyLong_CheckExact(item) || !put_integer(item, call)) return false;
  }
  return true;
}

uint64_t address_in(const DlTensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
}

bool read_by_table(const Reader& reader, PyObject* tensor, Call* call) {
  DlTensor found;
  if (reader.exchange->view(tensor, &found) != 0 || found.device.type != kCuda) return false;
  const int rank = found.rank;
  if (rank < 0 || (rank > 0 && !found.strides)) return false;
  if (call->words + 3 + 2 * rank > kMostWords) return false;
  const DlType type = found.dtype;
  int64_t* key = call->key + call->words;
  key[0] = tensor_of_rank(rank);
  key[1] = found.device.index;
  key[2] = int64_t{type.code} | int64_t{type.bits} << 8 | int64_t{type.lanes} << 16;
  for (int i = 0; i < rank; ++i) key[3 + i] = found.shape[i];
  for (int i = 0; i < rank; ++i) key[3 + rank + i] = found.strides[i];
  call->words += 3 + 2 * rank;
  call->addresses[call->tensors++] = address_in(found);
  return true;
}

/// Where a tensor lies; an exception is set where it does not say.
uint64_t address_of(const Reader& reader, PyObject* tensor) {
  DlTensor found;
  if (reader.exchange && reader.is_tensor(tensor)) {
    return reader.exchange->view(tensor, &found) == 0 ? address_in(found) : 0;
  }
  PyObject* number = ask(tensor, name_data_ptr);
  if (!number) return 0;
  const uint64_t address = PyLong_AsUnsignedLongLong(number);
  Py_DECREF(number);
  return address;
}

bool read_by_attributes(const Reader& reader, PyObject* tensor, Call* call) {
  PyObject* shape = PyObject_GetAttr(tensor, name_shape);
  if (!shape) return false;
  const Py_ssize_t rank = PyTuple_Check(shape) ? PyTuple_GET_SIZE(shape) : 0;
  const int64_t device = ask_number(tensor, name_get_device);
  PyObject* dtype = device < 0 ? nullptr : PyObject_GetAttr(tensor, name_dtype);
  PyObject* strides = dtype ? ask(tensor, name_stride) : nullptr;
  bool found = strides && call->put(tensor_of_rank(rank)) && call->put(device) &&
               call->put(static_cast<int64_t>(reinterpret_cast<intptr_t>(dtype))) &&
               put_numbers(shape, rank, call) && put_numbers(strides, rank, call);
  if (found && call->dtypes) found = PyList_Append(call->dtypes, dtype) == 0;
  Py_DECREF(shape);
  Py_XDECREF(dtype);
  Py_XDECREF(strides);
  if (!found) return false;
  call->addresses[call->tensors++] = address_of(reader, tensor);
  return !PyErr_Occurred();
}

bool read_one(const Reader& reader, PyObject* value, Call* call) {
  if (reader.is_tensor(value)) {
    return reader.exchange ? read_by_table(reader, value, call)
                           : read_by_attributes(reader, value, call);
  }
  if (PyLong_CheckExact(value)) return call->put(kInteger) && put_integer(value, call);
  if (PyFloat_CheckExact(value)) {
    const double number = PyFloat_AS_DOUBLE(value);
    int64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return call->put(kFloat) && call->put(bits);
  }
  return PyBool_Check(value) && call->put(kBool) && call->put(value == Py_True);
}

/// The arguments as words and addresses. False for a call that is not plain; no exception is left.
bool read(const Reader& reader, PyObject* const* arguments, Py_ssize_t positional, PyObject* names,
          Call* call) {
  const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
  const Py_ssize_t total = positional + named;
  if (total > kMostArguments) return false;
  call->put(positional);
  call->put(named);
  for (Py_ssize_t i = 0; i < named; ++i) call->put(PyObject_Hash(PyTuple_GET_ITEM(names, i)));
  for (Py_ssize_t i = 0; i < total; ++i) {
    if (!read_one(reader, arguments[i], call)) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

}  // namespace
