// The device: "PTX interpreter", one by default; ELINVAR_PTX_DEVICES says how many there are, and
// ELINVAR_PTX_MULTIPROCESSORS how many multiprocessors each has, on which launch sizes depend.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "tests/ptx/kernels.h"
#include "tests/ptx/runtime/queue.h"

namespace elinvar::ptx {
namespace {

constexpr size_t kMemory = size_t{16} << 30;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int chosen = 0;

int number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

int devices() { return number("ELINVAR_PTX_DEVICES", 1); }

}  // namespace

cudaError_t noted(cudaError_t error) { return last_error = error; }

int chosen_device() { return chosen; }

void die(const char* what) {
  std::fprintf(stderr, "PTX: %s\n", what);
  std::fflush(stderr);
  std::abort();
}

}  // namespace elinvar::ptx

using namespace elinvar::ptx;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    default:
      return "an error that the interpreter does not name";
  }
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return noted(cudaErrorInvalidDevice);
  chosen = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = number("ELINVAR_PTX_MULTIPROCESSORS", 132);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 << 10;  // as on sm_90
      break;
    case cudaDevAttrComputeCapabilityMajor:  // for all PTX, so that tests reach all kernels
      *value = 9;
      break;
    default:
      die("an attribute of the device that the interpreter does not know");
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int room, int device) {
  std::snprintf(text, static_cast<size_t>(room), "0000:%02x:00.0", static_cast<unsigned>(device) & 255);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "PTX interpreter");
  properties->totalGlobalMem = kMemory;
  properties->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kMemory;
  return cudaSuccess;
}

}  // extern "C"
