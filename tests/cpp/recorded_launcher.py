"""A generated launcher as a host library: its `cudaLaunchKernel` writes down what it is given.

The kernels' bodies are left out; what is compiled is the text from `// kernel end` on, the host primitives, and
declarations of the kernels, against a `cuda_runtime.h` of a few lines.
"""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.emit.c_names import c_name
from tilec.emit.types import scalar_host_type
from tilec.ir.tensor_maps import ELEMENT_TYPES, SWIZZLES
from tilec.runtime.arguments import CallSizes
from tilec.runtime.launching import ConcreteMap
from tilec.toolchain.host_compiler import find_host_compiler

FAKE_RUNTIME = r"""
#pragma once
#include <cstddef>
#include <cstdint>
using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorNoKernelImageForDevice = 209;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
constexpr int cudaFuncAttributeNonPortableClusterSizeAllowed = 14;
constexpr int cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76;
constexpr int cudaDevAttrMultiProcessorCount = 16;
#define __grid_constant__
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned n) : x(n) {}
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension = 4,
  cudaLaunchAttributeProgrammaticStreamSerialization = 6
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    dim3 clusterDim;
    int programmaticStreamSerializationAllowed = 0;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
struct Recorded {
  const void* kernel;
  unsigned grid, block;
  size_t shared;
  unsigned char arguments[1024];
  void* stream;
};
static Recorded recorded[16];
static int recorded_count = 0;
static int device_compute = 80;
static int device_multiprocessors = 7;
static int device_questions = 0;
static int early_launches = 0;
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
inline cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* kernel, void** arguments) {
  early_launches += c->numAttrs == 1 && c->attrs[0].val.programmaticStreamSerializationAllowed == 1;
  return cudaLaunchKernel(kernel, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes, c->stream);
}
inline cudaError_t cudaFuncSetAttribute(const void*, int, int) { return cudaSuccess; }
/// As many as the multiprocessors are said to hold: the other limit is the one that is compared.
inline cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void*, const cudaLaunchConfig_t* config) {
  *count = config->attrs->val.clusterDim.x == config->gridDim.x ? 1 << 20 : 0;
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, int which, int) {
  ++device_questions;
  *value = which == cudaDevAttrMultiProcessorCount      ? device_multiprocessors
           : which == cudaDevAttrComputeCapabilityMajor ? device_compute / 10
                                                        : device_compute % 10;
  return cudaSuccess;
}
"""

FAKE_DRIVER = r"""
#pragma once
#include "cuda_runtime.h"
struct alignas(128) CUtensorMap {
  uint64_t opaque[16];
};
using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
using CUresult = int;
constexpr CUresult CUDA_SUCCESS = 0;
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8,
  CU_TENSOR_MAP_DATA_TYPE_UINT16,
  CU_TENSOR_MAP_DATA_TYPE_UINT32,
  CU_TENSOR_MAP_DATA_TYPE_INT32,
  CU_TENSOR_MAP_DATA_TYPE_UINT64,
  CU_TENSOR_MAP_DATA_TYPE_INT64,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle {
  CU_TENSOR_MAP_SWIZZLE_NONE,
  CU_TENSOR_MAP_SWIZZLE_32B,
  CU_TENSOR_MAP_SWIZZLE_64B,
  CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
constexpr int cudaEnableDefault = 0;
static int encodings = 0, encoder_searches = 0;
static bool no_encoder = false;
/// Writes down what it was given.
inline CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                       const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  ++encodings;
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0) return 2;
  *map = CUtensorMap{{reinterpret_cast<uintptr_t>(base), static_cast<uint64_t>(type) | rank << 8 | uint64_t{swizzle} << 16}};
  for (unsigned i = 0; i < rank; ++i) {
    if (steps[i] != 1 || dims[i] < 1 || dims[i] > uint64_t{1} << 32) return 1;
    map->opaque[2 + i] = dims[i];
    map->opaque[11 + i] = box[i];
    if (i + 1 < rank) map->opaque[7 + i] = strides[i];
    if (i + 1 < rank && (strides[i] % 16 != 0 || strides[i] == 0 || strides[i] >> 40 != 0)) return 1;
  }
  return map->opaque[0] % 16 == 0 ? CUDA_SUCCESS : 1;
}
inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, int,
                                           cudaDriverEntryPointQueryResult* answer) {
  ++encoder_searches;
  *answer = no_encoder ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  if (__builtin_strcmp(name, "cuTensorMapEncodeTiled") == 0 && !no_encoder) {
    *function = reinterpret_cast<void*>(&cuTensorMapEncodeTiled);
  }
  return cudaSuccess;
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, int flags,
                                                    cudaDriverEntryPointQueryResult* answer) {
  return version == 12000 ? cudaGetDriverEntryPoint(name, function, flags, answer) : 1;
}
extern "C" void without_encoder() { no_encoder = true; }
extern "C" int encodings_made() { return encodings; }
extern "C" int searches_made() { return encoder_searches; }
"""

FOOTER = r"""
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                             cudaStream_t stream) {
  Recorded& r = recorded[recorded_count++];
  r = Recorded{kernel, grid.x, block.x, shared, {}, stream};
  pack(kernel, arguments, r.arguments);
  return cudaSuccess;
}
extern "C" void set_device(int compute) { device_compute = compute; }
extern "C" void set_multiprocessors(int count) { device_multiprocessors = count; }
extern "C" int questions() { return device_questions; }
extern "C" int early() { return early_launches; }
extern "C" void forget() { recorded_count = 0; }
extern "C" void* stream_of(int n) { return recorded[n].stream; }
extern "C" int launches() { return recorded_count; }
extern "C" const char* launched(int n, unsigned* grid, unsigned* block, size_t* shared, void* arguments) {
  *grid = recorded[n].grid;
  *block = recorded[n].block;
  *shared = recorded[n].shared;
  __builtin_memcpy(arguments, recorded[n].arguments, sizeof(recorded[n].arguments));
  return name_of(recorded[n].kernel);
}
"""


@dataclass(frozen=True)
class Recorded:
    """One launch: `arguments` is the start of the kernel's parameter buffer."""

    kernel: str
    grid: int
    block: int
    shared_bytes: int
    arguments: bytes


@dataclass(frozen=True)
class Answer:
    """What a launcher did: its status, its sentence, its launches."""

    status: int
    sentence: str
    launches: tuple[Recorded, ...]


def host_text(cu: str) -> str:
    """The host part of a `.cu` with declarations of its kernels."""
    helpers = cu[cu.index("host helpers") : cu.index("}  // namespace\n")].partition("\n")[2]
    launchers = "\n".join(re.findall(r"// kernel end\n(.*?)(?=\n// -{20}|\Z)", cu, re.DOTALL))
    wrappers = re.findall(
        r'extern "C" __global__ void\s(?:(?:#|__cluster_dims__).*\n)*__launch_bounds__\(.*\)\s+(\w+)\(([^)]*)\) \{',
        cu,
    )
    stubs, packing, naming = [], [], []
    for name, text in wrappers:
        types = [re.sub(r"\s*(__restrict__)?\s*\w+$", "", p.strip()) for p in text.split(",")]
        stubs.append(f"void {name}({', '.join(types)}) {{}}")
        lines = [
            f"at = (at + sizeof(T{n}) - 1) / sizeof(T{n}) * sizeof(T{n}); "
            f"__builtin_memcpy(to + at, from[{n}], sizeof(T{n})); at += sizeof(T{n});"
            for n in range(len(types))
        ]
        uses = " ".join(f"using T{n} = {t};" for n, t in enumerate(types))
        is_it = f"if (k == reinterpret_cast<const void*>(&{name}))"
        packing.append(f"  {is_it} {{ {uses} size_t at = 0; {' '.join(lines)} }}")
        naming.append(f'  {is_it} return "{name}";')
    includes = "\n".join(re.findall(r"^#include <c?(?!uda)\w+(?:\.h)?>$", cu, re.MULTILINE))
    opaque = (
        "struct i4_t; struct u4_t; struct f8e4m3_t; struct f8e5m2_t; struct f16_t; struct bf16_t;"
    )
    return "\n".join(
        [
            '#include "cuda_runtime.h"',
            includes,
            opaque,
            "namespace {",
            helpers,
            "}",
            *stubs,
            launchers,
            "static void pack(const void* k, void** from, unsigned char* to) {",
            *packing,
            "}",
            "static const char* name_of(const void* k) {",
            *naming,
            '  return "";',
            "}",
            FOOTER,
        ]
    )


def recorded_map(wanted: ConcreteMap) -> bytes:
    """What the recording driver makes of a map."""
    kind = ELEMENT_TYPES[wanted.dtype].number | len(wanted.dims) << 8
    kind |= SWIZZLES[wanted.swizzle].number << 16

    def five(numbers: tuple[int, ...], count: int) -> list[int]:
        return [*numbers, *[0] * (count - len(numbers))]

    numbers = [wanted.base, kind, *five(wanted.dims, 5), *five(wanted.strides, 4)]
    return struct.pack("<16Q", *numbers, *five(wanted.box, 5))


class RecordedLaunchers:
    """The launchers of one compiled file, as a toolkit of the version `runtime` has them."""

    def __init__(self, compiled: CompiledFile, folder: Path, runtime: int = 13000):
        (folder / "cuda_runtime.h").write_text(FAKE_RUNTIME)
        (folder / "cuda.h").write_text(FAKE_DRIVER)
        source, library = folder / "launchers.cpp", folder / "launchers.so"
        source.write_text(host_text(compiled.cu))
        command = [str(find_host_compiler(None).path), "-std=c++17", "-O1", "-fPIC"]
        command += [
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Wsign-conversion",
            "-Wshadow",
            "-Werror",
            "-fsanitize=undefined",
        ]
        command += ["-fno-sanitize-recover=undefined", "-static-libubsan", "-shared", f"-I{folder}"]
        command += [f"-DCUDART_VERSION={runtime}"]
        done = subprocess.run(
            [*command, str(source), "-o", str(library)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        self.library: Any = ctypes.CDLL(str(library))
        self.library.launched.restype = ctypes.c_char_p

    def call(
        self,
        kernel: CompiledKernel,
        sizes: CallSizes,
        addresses: Mapping[str, int],
        workspace: int,
        compute: int,
    ) -> Answer:
        """Call a launcher as a C program would, on a device of compute capability `compute` / 10."""
        plan = kernel.plan
        values: list[Any] = [ctypes.c_void_p(addresses[t.name]) for t in plan.parameters]
        values += [ctypes.c_int(sizes.dims[v.name]) for v in plan.dims]
        values += [ctypes.c_int(sizes.strides[v.name]) for v in plan.strides]
        for scalar in plan.scalars:
            kind = _C_TYPES[scalar_host_type(scalar.dtype)]
            values.append(kind(sizes.scalars[scalar.name]))
        values += [ctypes.c_void_p(workspace), ctypes.c_void_p(0)]
        self.library.set_device(compute)
        self.library.forget()
        name = c_name(kernel.name)
        status = self.library[name](*values)
        error = self.library[f"{name}_error"]
        error.restype = ctypes.c_char_p
        return Answer(status, error().decode(), tuple(self._launches()))

    def workspace_bytes(self, kernel: CompiledKernel, sizes: CallSizes) -> int:
        """What the launcher says of the workspace."""
        function = self.library[f"{c_name(kernel.name)}_workspace_bytes"]
        function.restype = ctypes.c_size_t
        return int(function(*(sizes.dims[v.name] for v in kernel.plan.dims)))

    def _launches(self) -> Sequence[Recorded]:
        found = []
        for n in range(self.library.launches()):
            grid, block, shared = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_size_t()
            buffer = ctypes.create_string_buffer(1024)
            name = self.library.launched(
                n, ctypes.byref(grid), ctypes.byref(block), ctypes.byref(shared), buffer
            )
            found.append(Recorded(name.decode(), grid.value, block.value, shared.value, buffer.raw))
        return found


_C_TYPES: Mapping[str, Any] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int16_t": ctypes.c_int16,
    "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}
