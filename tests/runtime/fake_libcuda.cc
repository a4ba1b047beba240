// The driver's library as far as tilec calls it, on host memory. A module's image is a text: for each kernel a line with its
// name and the sizes of its parameters.
#include <stdint.h>
#include <string.h>

#include <sstream>
#include <string>
#include <vector>

namespace {
struct Function {
  std::string name;
  std::vector<size_t> sizes;
  int shared = 48 << 10;
};
struct Module {
  std::vector<Function> functions;
};
std::string log;
int loaded = 0;
}  // namespace

extern "C" {
const char* log_of() { return log.c_str(); }
int modules_loaded() { return loaded; }

int cuGetErrorName(int status, const char** text) {
  *text = status == 1 ? "CUDA_ERROR_INVALID_VALUE" : status == 500 ? "CUDA_ERROR_NOT_FOUND" : nullptr;
  return *text ? 0 : 1;
}

int cuModuleLoadData(void** module, const char* image) {
  auto* made = new Module;
  std::istringstream lines(image);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Function function;
    words >> function.name;
    for (size_t size; words >> size;) function.sizes.push_back(size);
    made->functions.push_back(function);
  }
  *module = made;
  ++loaded;
  return 0;
}

int cuModuleUnload(void* module) {
  delete static_cast<Module*>(module);
  --loaded;
  return 0;
}

int cuModuleGetFunction(void** function, void* module, const char* name) {
  for (Function& f : static_cast<Module*>(module)->functions) {
    *function = &f;
    if (f.name == name) return 0;
  }
  return 500;
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8 || value > 227 << 10) return 1;
  static_cast<Function*>(function)->shared = value;
  return 0;
}

int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* base, const uint64_t* dims, const uint64_t* strides,
                           const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
  if (reinterpret_cast<uintptr_t>(map) % 64 || interleave || promotion != 2 || fill) return 1;
  uint64_t words[16] = {reinterpret_cast<uintptr_t>(base), type | rank << 8 | static_cast<uint64_t>(swizzle) << 16};
  for (uint32_t i = 0; i < rank; ++i) {
    if (steps[i] != 1 || (i + 1 < rank && strides[i] % 16)) return 1;
    words[2 + i] = dims[i];
    words[11 + i] = box[i];
    if (i + 1 < rank) words[7 + i] = strides[i];
  }
  memcpy(map, words, sizeof(words));
  return 0;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** parameters, void** extra) {
  const auto* f = static_cast<Function*>(function);
  if (gy != 1 || gz != 1 || by != 1 || bz != 1 || extra || shared > static_cast<unsigned>(f->shared)) return 1;
  std::ostringstream said;
  said << f->name << ' ' << gx << ' ' << bx << ' ' << shared << ' ' << reinterpret_cast<uintptr_t>(stream);
  for (size_t i = 0; i < f->sizes.size(); ++i) {
    said << ' ';
    for (size_t at = 0; at < f->sizes[i]; ++at) {
      const int byte = static_cast<unsigned char*>(parameters[i])[at];
      said << "0123456789abcdef"[byte >> 4] << "0123456789abcdef"[byte & 15];
    }
  }
  log += said.str() + '\n';
  return 0;
}
}
