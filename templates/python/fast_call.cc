// A kernel called from Python by the shortest way: an extension of CPython, built by the host
// compiler when it is first needed.
//
// Forms holds what tilec/calling/repeated.py calls forms, as plain words. `call` reads the
// arguments of a call into such words, finds the form, makes the outputs that are missing and calls
// the generated launcher. Whatever is not as expected goes to `fallback`, the same call in Python,
// which finds out why.

#include "reading.h"

namespace {

constexpr int kMostSlots = 96;  // of a launcher
constexpr int kBuckets = 256;   // a power of two

// ------------------------------------------------------------------------------------------- forms

using Packed = int (*)(const uint64_t* slots);

struct Output {
  PyObject *shape, *dtype;
};

/// What a call of one form does. Counted: a call holds it while Python code runs, which may forget
/// it.
struct Form {
  Py_ssize_t users;
  Form* next;
  int words;
  int64_t* key;
  PyObject* names;      // of the arguments given by name: a tuple or null
  PyObject* kept;       // what the words of the key point to: dtypes
  PyObject* built;      // the kernel's `_last`
  PyObject* refuse;     // (addresses, workspace, status): raises
  PyObject* device;     // an int
  PyObject* workspace;  // bytes, or null
  Packed launcher;
  int outputs, results, slots, parameters;
  Output made[kMostArguments];
  int places[kMostSlots];   // of the parameters: among the tensors given, then those made
  int returned[kMostArguments];
  uint64_t numbers[kMostSlots];  // all slots; addresses, workspace and stream are put in
};

void drop(Form* form) {
  if (--form->users) return;
  Py_XDECREF(form->names);
  Py_XDECREF(form->kept);
  Py_XDECREF(form->built);
  Py_XDECREF(form->refuse);
  Py_XDECREF(form->device);
  Py_XDECREF(form->workspace);
  for (int i = 0; i < form->outputs; ++i) {
    Py_XDECREF(form->made[i].shape);
    Py_XDECREF(form->made[i].dtype);
  }
  PyMem_Free(form->key);
  PyMem_Free(form);
}

struct Forms {
  PyObject_HEAD
  Reader reader;
  PyObject *empty, *byte;  // torch.empty, torch.uint8
  PyObject *current_device, *stream, *exchange_capsule, *fallback, *way;
  Py_ssize_t limit, count;
  Form* last;
  Form* buckets[kBuckets];
};

PyTypeObject* forms_type = nullptr;

// Interned names.
PyObject *name_forms, *name_last, *name_last_path;
PyObject* names_of_empty;  // ("dtype", "device")

bool same_names(PyObject* mine, PyObject* theirs) {
  const Py_ssize_t count = theirs ? PyTuple_GET_SIZE(theirs) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *one = PyTuple_GET_ITEM(mine, i), *other = PyTuple_GET_ITEM(theirs, i);
    // strings both: no exception
    if (one != other && PyUnicode_Compare(one, other) != 0) return false;
  }
  return true;
}

bool is_form(const Form* form, const Call& call, PyObject* names) {
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(call.words);
  return form->words == call.words && memcmp(form->key, call.key, bytes) == 0 &&
         same_names(form->names, names);
}

size_t bucket_of(const Call& call) {
  uint64_t sum = 0x9e3779b97f4a7c15;
  for (int i = 0; i < call.words; ++i) {
    sum = (sum ^ static_cast<uint64_t>(call.key[i])) * 0xff51afd7ed558ccd;
    sum ^= sum >> 32;
  }
  return sum & (kBuckets - 1);
}

Form* find(Forms* forms, const Call& call, PyObject* names) {
  if (forms->last && is_form(forms->last, call, names)) return forms->last;
  for (Form* form = forms->buckets[bucket_of(call)]; form; form = form->next) {
    if (is_form(form, call, names)) return forms->last = form;
  }
  return nullptr;
}

void forget_all(Forms* forms) {
  forms->last = nullptr;
  forms->count = 0;
  for (Form*& bucket : forms->buckets) {
    Form* chain = bucket;
    bucket = nullptr;
    while (chain) {
      Form* form = chain;
      chain = form->next;
      drop(form);
    }
  }
}

// ----------------------------------------------------------------------------------------- calling

/// torch.empty(shape, dtype=dtype, device=device)
PyObject* make(const Forms* forms, PyObject* shape, PyObject* dtype, PyObject* device) {
  PyObject* arguments[] = {nullptr, shape, dtype, device};
  return PyObject_Vectorcall(forms->empty, arguments + 1, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                             names_of_empty);
}

/// Whether the form's device is the current one; -1 with an exception.
int is_current(const Forms* forms, const Form* form) {
  if (forms->current_device == Py_None) return 1;
  PyObject* found = PyObject_CallNoArgs(forms->current_device);
  if (!found) return -1;
  const int same = found == form->device ? 1 : PyObject_RichCompareBool(found, form->device, Py_EQ);
  Py_DECREF(found);
  return same;
}

/// The handle of the current stream. False with an exception.
bool stream_of(const Forms* forms, const Form* form, uint64_t* handle) {
  if (const DlExchange* exchange = forms->reader.exchange) {
    void* stream = nullptr;
    const auto device = static_cast<int32_t>(PyLong_AsLong(form->device));
    if (exchange->current_stream(kCuda, device, &stream) != 0) {
      if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "there is no current stream");
      return false;
    }
    *handle = reinterpret_cast<uintptr_t>(stream);
    return true;
  }
  PyObject* arguments[] = {nullptr, form->device};
  PyObject* found = PyObject_Vectorcall(forms->stream, arguments + 1,
                                        1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
  if (!found) return false;
  *handle = PyLong_AsUnsignedLongLong(found);
  Py_DECREF(found);
  return !PyErr_Occurred();
}

/// What the launcher refused, as the exception that the long way raises.
void raise_refused(const Form* form, const uint64_t* slots, uint64_t workspace, int status) {
  PyObject* addresses = PyTuple_New(form->parameters);
  for (int i = 0; addresses && i < form->parameters; ++i) {
    PyObject* address = PyLong_FromUnsignedLongLong(slots[i]);
    if (address) {
      PyTuple_SET_ITEM(addresses, i, address);
    } else {
      Py_CLEAR(addresses);
    }
  }
  if (!addresses) return;
  PyObject* answer = PyObject_CallFunction(form->refuse, "NKi", addresses,
                                           static_cast<unsigned long long>(workspace), status);
  if (answer) {
    Py_DECREF(answer);
    PyErr_Format(PyExc_RuntimeError, "the launcher answers %d", status);
  }
}

/// The call of a form that was found: outputs, workspace, launch. Null with an exception.
PyObject* launch(const Forms* forms, const Form* form, const Call& call, PyObject* const* tensors) {
  PyObject* made[kMostArguments];
  uint64_t addresses[2 * kMostArguments], slots[kMostSlots], place = 0;
  PyObject *workspace = nullptr, *result = nullptr;
  int count = 0, status = 0;
  memcpy(addresses, call.addresses, sizeof(uint64_t) * static_cast<size_t>(call.tensors));
  for (; count < form->outputs; ++count) {
    made[count] = make(forms, form->made[count].shape, form->made[count].dtype, form->device);
    if (!made[count]) goto done;
    addresses[call.tensors + count] = address_of(forms->reader, made[count]);
    if (PyErr_Occurred()) {
      ++count;
      goto done;
    }
  }
  memcpy(slots, form->numbers, sizeof(uint64_t) * static_cast<size_t>(form->slots));
  if (!stream_of(forms, form, &slots[form->slots - 1])) goto done;
  if (form->workspace) {
    workspace = make(forms, form->workspace, forms->byte, form->device);
    if (!workspace) goto done;
    place = address_of(forms->reader, workspace);
    if (PyErr_Occurred()) goto done;
  }
  slots[form->slots - 2] = place;
  for (int i = 0; i < form->parameters; ++i) slots[i] = addresses[form->places[i]];
  // a launch waits while the queue of the device is full
  Py_BEGIN_ALLOW_THREADS
  status = form->launcher(slots);
  Py_END_ALLOW_THREADS
  if (status) {
    raise_refused(form, slots, place, status);
    goto done;
  }
  if (form->results == 1) {
    const int where = form->returned[0];
    result = where < call.tensors ? tensors[where] : made[where - call.tensors];
    Py_INCREF(result);
  } else if (form->results == 0) {
    result = Py_None;
    Py_INCREF(result);
  } else if ((result = PyTuple_New(form->results))) {
    for (int i = 0; i < form->results; ++i) {
      const int where = form->returned[i];
      PyObject* one = where < call.tensors ? tensors[where] : made[where - call.tensors];
      Py_INCREF(one);
      PyTuple_SET_ITEM(result, i, one);
    }
  }
done:
  for (int i = 0; i < count; ++i) Py_DECREF(made[i]);
  Py_XDECREF(workspace);
  return result;
}

/// The same call in Python.
PyObject* call_fallback(const Forms* forms, PyObject* kernel, PyObject* const* arguments,
                        Py_ssize_t positional, PyObject* names) {
  const Py_ssize_t total = positional + (names ? PyTuple_GET_SIZE(names) : 0);
  const size_t bytes = sizeof(PyObject*) * static_cast<size_t>(total + 1);
  auto** all = static_cast<PyObject**>(PyMem_Malloc(bytes));
  if (!all) return PyErr_NoMemory();
  all[0] = kernel;
  for (Py_ssize_t i = 0; i < total; ++i) all[i + 1] = arguments[i];
  PyObject* result =
      PyObject_Vectorcall(forms->fallback, all, static_cast<size_t>(positional + 1), names);
  PyMem_Free(all);
  return result;
}

/// `kernel(*arguments, **named)`, a method of the class that `install` was given.
PyObject* call(PyObject* kernel, PyObject* const* arguments, Py_ssize_t positional,
               PyObject* names) {
  PyObject* held = PyObject_GetAttr(kernel, name_forms);
  if (!held) return nullptr;
  if (!Py_IS_TYPE(held, forms_type)) {
    Py_DECREF(held);
    PyErr_SetString(PyExc_TypeError, "the kernel has no forms");
    return nullptr;
  }
  auto* forms = reinterpret_cast<Forms*>(held);
  PyObject* result = nullptr;
  Call found;
  const bool plain = read(forms->reader, arguments, positional, names, &found);
  Form* form = plain ? find(forms, found, names) : nullptr;
  if (form) ++form->users;
  const int current = form ? is_current(forms, form) : 0;
  if (current > 0) {
    // the tensors among the arguments, in order, as they were read
    PyObject* tensors[kMostArguments];
    int count = 0;
    for (Py_ssize_t i = 0; count < found.tensors; ++i) {
      if (forms->reader.is_tensor(arguments[i])) tensors[count++] = arguments[i];
    }
    result = launch(forms, form, found, tensors);
    if (result && (PyObject_SetAttr(kernel, name_last, form->built) != 0 ||
                   PyObject_SetAttr(kernel, name_last_path, forms->way) != 0)) {
      Py_CLEAR(result);
    }
  } else if (current == 0) {
    result = call_fallback(forms, kernel, arguments, positional, names);
  }
  if (form) drop(form);
  Py_DECREF(held);
  return result;
}

// ---------------------------------------------------------------------------------- the type Forms

int forms_traverse(PyObject* self, visitproc visit, void* arg) {
  auto* forms = reinterpret_cast<Forms*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(forms->reader.tensor);
  Py_VISIT(forms->reader.parameter);
  Py_VISIT(forms->empty);
  Py_VISIT(forms->byte);
  Py_VISIT(forms->current_device);
  Py_VISIT(forms->stream);
  Py_VISIT(forms->exchange_capsule);
  Py_VISIT(forms->fallback);
  Py_VISIT(forms->way);
  for (Form* form : forms->buckets) {
    for (; form; form = form->next) {
      Py_VISIT(form->names);
      Py_VISIT(form->kept);
      Py_VISIT(form->built);
      Py_VISIT(form->refuse);
      for (int i = 0; i < form->outputs; ++i) {
        Py_VISIT(form->made[i].shape);
        Py_VISIT(form->made[i].dtype);
      }
    }
  }
  return 0;
}

int forms_clear(PyObject* self) {
  auto* forms = reinterpret_cast<Forms*>(self);
  forget_all(forms);
  Py_CLEAR(forms->reader.tensor);
  Py_CLEAR(forms->reader.parameter);
  Py_CLEAR(forms->empty);
  Py_CLEAR(forms->byte);
  Py_CLEAR(forms->current_device);
  Py_CLEAR(forms->stream);
  Py_CLEAR(forms->exchange_capsule);
  Py_CLEAR(forms->fallback);
  Py_CLEAR(forms->way);
  forms->reader.exchange = nullptr;
  return 0;
}

void forms_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  forms_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* forms_new(PyTypeObject* type, PyObject* arguments, PyObject* named) {
  static const char* names[] = {"tensor", "parameter", "empty", "byte", "current_device", "stream",
                                "exchange", "fallback", "way", "limit", nullptr};
  PyObject *tensor, *parameter, *empty, *byte, *device, *stream, *exchange, *fallback, *way;
  Py_ssize_t limit;
  if (!PyArg_ParseTupleAndKeywords(arguments, named, "OOOOOOOOUn", const_cast<char**>(names),
                                   &tensor, &parameter, &empty, &byte, &device, &stream, &exchange,
                                   &fallback, &way, &limit)) {
    return nullptr;
  }
  auto* forms = reinterpret_cast<Forms*>(type->tp_alloc(type, 0));  // zeroed
  if (!forms) return nullptr;
  const auto keep = [](PyObject* object) { return Py_INCREF(object), object; };
  forms->reader = Reader{keep(tensor), keep(parameter), exchange_of(exchange)};
  forms->empty = keep(empty);
  forms->byte = keep(byte);
  forms->current_device = keep(device);
  forms->stream = keep(stream);
  forms->exchange_capsule = keep(exchange);
  forms->fallback = keep(fallback);
  forms->way = keep(way);
  forms->limit = limit;
  return reinterpret_cast<PyObject*>(forms);
}

/// The numbers of a tuple; -1 with an exception where there are more than `most`, or other ones
/// than [0, below).
int places_of(PyObject* tuple, int most, int below, int* to) {
  const Py_ssize_t count = PyTuple_GET_SIZE(tuple);
  for (Py_ssize_t i = 0; i < count && i < most; ++i) {
    const long place = PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
    if (place == -1 && PyErr_Occurred()) return -1;
    if (place < 0 || place >= below) break;
    to[i] = static_cast<int>(place);
    if (i + 1 == count) return static_cast<int>(count);
  }
  if (count == 0) return 0;
  PyErr_SetString(PyExc_ValueError, "places out of range");
  return -1;
}

/// The parts of a form that follow from the call that was read. False with an exception.
bool fill(Form* form, const Call& call, PyObject* places, PyObject* outputs, PyObject* results,
          PyObject* numbers) {
  const Py_ssize_t count = PyTuple_GET_SIZE(outputs);
  const Py_ssize_t size = PyBytes_GET_SIZE(numbers) / 8;
  const Py_ssize_t parameters = PyTuple_GET_SIZE(places);
  if (count > kMostArguments || parameters + size + 2 > kMostSlots) {
    PyErr_SetString(PyExc_ValueError, "too many arguments");
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *shape, *dtype, *pair = PyTuple_GET_ITEM(outputs, i);
    if (!PyArg_Parse(pair, "(OO)", &shape, &dtype)) return false;
    Py_INCREF(shape);
    Py_INCREF(dtype);
    form->made[form->outputs++] = Output{shape, dtype};
  }
  const int arrays = call.tensors + form->outputs;
  form->parameters = places_of(places, kMostSlots, arrays, form->places);
  form->results = places_of(results, kMostArguments, arrays, form->returned);
  if (form->parameters < 0 || form->results < 0) return false;
  form->slots = form->parameters + static_cast<int>(size) + 2;
  uint64_t* behind = form->numbers + form->parameters;
  memcpy(behind, PyBytes_AS_STRING(numbers), static_cast<size_t>(size) * 8);
  const size_t bytes = sizeof(int64_t) * static_cast<size_t>(call.words);
  form->words = call.words;
  form->key = static_cast<int64_t*>(PyMem_Malloc(bytes));
  if (!form->key) {
    PyErr_NoMemory();
    return false;
  }
  memcpy(form->key, call.key, bytes);
  return true;
}

/// keep(arguments, named, launcher, numbers, places, outputs, results, workspace, device, built,
/// refuse) -> bool
PyObject* forms_keep(PyObject* self, PyObject* given) {
  auto* forms = reinterpret_cast<Forms*>(self);
  PyObject *arguments, *named, *numbers, *places, *outputs, *results, *device, *built, *refuse;
  unsigned long long launcher;
  Py_ssize_t workspace;
  if (!PyArg_ParseTuple(given, "O!O!KO!O!O!O!nO!OO", &PyTuple_Type, &arguments, &PyDict_Type,
                        &named, &launcher, &PyBytes_Type, &numbers, &PyTuple_Type, &places,
                        &PyTuple_Type, &outputs, &PyTuple_Type, &results, &workspace, &PyLong_Type,
                        &device, &built, &refuse)) {
    return nullptr;
  }
  const Py_ssize_t positional = PyTuple_GET_SIZE(arguments), count = PyDict_GET_SIZE(named);
  if (positional + count > kMostArguments) Py_RETURN_FALSE;
  PyObject* all[kMostArguments];
  for (Py_ssize_t i = 0; i < positional; ++i) all[i] = PyTuple_GET_ITEM(arguments, i);
  Call call;
  auto* form = static_cast<Form*>(PyMem_Calloc(1, sizeof(Form)));
  if (!form) return PyErr_NoMemory();
  form->users = 1;
  form->names = PyTuple_New(count);
  form->kept = call.dtypes = PyList_New(0);
  bool kept = false;
  if (form->names && form->kept) {
    Py_ssize_t at = 0, i = 0;
    PyObject *name, *value;
    while (PyDict_Next(named, &at, &name, &value)) {
      Py_INCREF(name);
      PyTuple_SET_ITEM(form->names, i, name);
      all[positional + i++] = value;
    }
    kept = read(forms->reader, all, positional, form->names, &call) &&
           fill(form, call, places, outputs, results, numbers);
  }
  if (kept) {
    const auto hold = [](PyObject* object) { return Py_INCREF(object), object; };
    form->launcher = reinterpret_cast<Packed>(static_cast<uintptr_t>(launcher));
    form->device = hold(device);
    form->built = hold(built);
    form->refuse = hold(refuse);
    if (workspace) form->workspace = PyLong_FromSsize_t(workspace);
    kept = !workspace || form->workspace;
  }
  if (!kept) {
    drop(form);
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_FALSE;
  }
  if (forms->count >= forms->limit) forget_all(forms);
  Form** bucket = &forms->buckets[bucket_of(call)];
  form->next = *bucket;
  *bucket = form;
  ++forms->count;
  Py_RETURN_TRUE;
}

Py_ssize_t forms_size(PyObject* self) { return reinterpret_cast<Forms*>(self)->count; }

PyObject* forms_by_table(PyObject* self, void*) {
  return PyBool_FromLong(reinterpret_cast<Forms*>(self)->reader.exchange != nullptr);
}

PyMethodDef forms_methods[] = {
    {"keep", forms_keep, METH_VARARGS,
     "Remember what a call of this form does; False for arguments that are not plain."},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef forms_attributes[] = {
    {"by_table", forms_by_table, nullptr,
     "whether tensors are read through DLPack's exchange table", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot forms_slots[] = {
    {Py_tp_doc, const_cast<char*>("The forms that a kernel was called with.")},
    {Py_tp_new, reinterpret_cast<void*>(forms_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(forms_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(forms_traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(forms_clear)},
    {Py_tp_methods, forms_methods},
    {Py_tp_getset, forms_attributes},
    {Py_sq_length, reinterpret_cast<void*>(forms_size)},
    {0, nullptr},
};
PyType_Spec forms_spec = {"tilec_fast_call.Forms", sizeof(Forms), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, forms_slots};

// -------------------------------------------------------------------------------------- the module

PyMethodDef call_method = {
    "__call__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
    METH_FASTCALL | METH_KEYWORDS,
    "__call__($self, /, *arguments, stream=None, **named)\n--\n\nRun the kernel."};

/// install(cls): calls of the instances of a class, whose `_fast_forms` are Forms, go through
/// `call`.
PyObject* install(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "a class is wanted");
  PyObject* method = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(type), &call_method);
  if (!method) return nullptr;
  const int status = PyObject_SetAttrString(type, "__call__", method);
  Py_DECREF(method);
  if (status != 0) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef module_methods[] = {
    {"install", install, METH_O, "Give a class the fast `__call__`."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "tilec_fast_call", nullptr, -1,
                                 module_methods,        nullptr,           nullptr, nullptr,
                                 nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_tilec_fast_call() {
  const struct {
    PyObject** to;
    const char* text;
  } names[] = {{&name_forms, "_fast_forms"},     {&name_last, "_last"},
               {&name_last_path, "last_path"},   {&name_shape, "shape"},
               {&name_stride, "stride"},         {&name_dtype, "dtype"},
               {&name_get_device, "get_device"}, {&name_data_ptr, "data_ptr"}};
  for (const auto& name : names) {
    if (!(*name.to = PyUnicode_InternFromString(name.text))) return nullptr;
  }
  if (!(names_of_empty = Py_BuildValue("(ss)", "dtype", "device"))) return nullptr;
  forms_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&forms_spec));
  if (!forms_type) return nullptr;
  PyObject* module = PyModule_Create(&module_definition);
  auto* type = reinterpret_cast<PyObject*>(forms_type);
  if (module && PyModule_AddObjectRef(module, "Forms", type) != 0) Py_CLEAR(module);
  return module;
}
