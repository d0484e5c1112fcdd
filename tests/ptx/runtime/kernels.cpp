// Kernels as nvcc's host code registers and launches them.
#include "tests/ptx/kernels.h"

#include <cuda_runtime.h>

#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/ptx/runtime/queue.h"

namespace elinvar::ptx {
namespace {

constexpr size_t kShared = size_t{48} << 10, kMostShared = size_t{227} << 10;  // what a block gets unasked, and at most
constexpr size_t kMostParameters = 32764;
constexpr unsigned kMostThreads = 1024;

struct Registered {
  std::string name;
  Function* kernel = nullptr;          // null before the first launch
  std::optional<size_t> most_dynamic;  // shared memory, if the attribute was set
};

// By the address of the host function that launches it. Kernels register before main().
class Registry {
 public:
  static Registry& instance() {
    static auto* all = new Registry;
    return *all;
  }
  void add(const void* host, const char* name) {
    const std::lock_guard lock(mutex_);
    kernels_[host].name = name;
  }
  void allow_shared(const void* host, size_t bytes) {
    const std::lock_guard lock(mutex_);
    kernels_.at(host).most_dynamic = bytes;
  }
  Registered find(const void* host) {
    const std::lock_guard lock(mutex_);
    Registered& kernel = kernels_.at(host);
    if (kernel.kernel == nullptr) kernel.kernel = &find_kernel(kernel.name);
    return kernel;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, Registered> kernels_;
};

struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

cudaError_t start(const void* host, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
  const Registered kernel = Registry::instance().find(host);
  if (grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1) die("a grid of more than one dimension");
  if (grid.x == 0 || block.x == 0 || block.x > kMostThreads) return noted(cudaErrorInvalidConfiguration);
  const size_t all_shared = kernel.kernel->shared_bytes + shared;
  if (all_shared > (kernel.most_dynamic ? kMostShared : kShared) || shared > kernel.most_dynamic.value_or(shared))
    return noted(cudaErrorInvalidValue);
  if (kernel.kernel->parameter_bytes > kMostParameters) return noted(cudaErrorInvalidValue);
  perform(stream, [=, f = kernel.kernel, parameters = parameters_of(*kernel.kernel, arguments)] {
    try {
      launch(*f, {.blocks = grid.x, .threads = block.x, .dynamic_shared = shared, .parameters = parameters},
             races_of_this_process());
    } catch (const std::exception& e) {
      die(e.what());
    }
  });
  return cudaSuccess;
}

}  // namespace
}  // namespace elinvar::ptx

using namespace elinvar::ptx;

extern "C" {

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Registry::instance().add(host, name);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                               cudaStream_t stream) {
  try {
    return start(kernel, grid, block, arguments, shared, stream);
  } catch (const std::exception& e) {
    die(e.what());
  }
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  try {
    *attributes = {};
    attributes->sharedSizeBytes = Registry::instance().find(host).kernel->shared_bytes;
    return cudaSuccess;
  } catch (const std::exception& e) {
    die(e.what());
  }
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) die("an attribute that the interpreter does not know");
  if (value < 0 || static_cast<size_t>(value) > kMostShared) return noted(cudaErrorInvalidValue);
  Registry::instance().allow_shared(host, static_cast<size_t>(value));
  return cudaSuccess;
}

}  // extern "C"
