#pragma once
// Everything that a .cu file needs. Such a file is compiled by nvcc and, in builds with tests, by the C++ compiler
// against tests/emulation/cuda.h, which runs a block's threads in turn; `Gpu` is the stream of the respective kind.
//
//   #include "tensor/cuda/kernel.h"        // before any -inl.h
//   #include "tensor/math-inl.h"           // Vec<float>: one lane, with the canonical mathematics
//
//   namespace elinvar::HWY_NAMESPACE {     // device functions go here; each compiler has its own name
//   namespace {
//   __global__ void softmax_rows(SoftmaxArgs a) { ... }
//   }  // namespace
//   }  // namespace elinvar::HWY_NAMESPACE
//
//   namespace elinvar {
//   template <>
//   void softmax(Gpu& stream, const SoftmaxArgs& a) {
//     launch(stream, "softmax", {.blocks = a.rows, .threads = 128}, HWY_NAMESPACE::softmax_rows, a);
//   }
//   }  // namespace elinvar
//
// Portable kernels obey NUMERICS.md: `+ - *` are rounded one by one (the build passes -fmad=false), fma is the one of
// simd-inl.h, nothing is added atomically, and no launch size shows in a result.
//
// The -inl.h headers are those of the CPU kernels. A GPU is one more target for them: a vector of one lane.
#if defined(HWY_NAMESPACE)
#error "tensor/cuda/kernel.h must come before Highway's headers"
#endif
#define ELINVAR_DEVICE_CODE 1
#define HWY_SCALAR 1
#define HWY_AVX2 2
#define HWY_AVX3 3
#define HWY_TARGET HWY_SCALAR
#define HWY_BEFORE_NAMESPACE() static_assert(true, "")
#define HWY_AFTER_NAMESPACE() static_assert(true, "")
#define HWY_ATTR
#ifdef __CUDACC__
#include <cuda_runtime.h>
#define HWY_NAMESPACE N_CUDA
#define HWY_INLINE __device__ __forceinline__
#define HWY_NOINLINE __device__ __noinline__
#else
#define HWY_NAMESPACE N_EMULATED
#define HWY_INLINE inline
#define HWY_NOINLINE
#endif

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>

#include "tensor/base/failure.h"
#include "tensor/dtype.h"
#include "tensor/gpu_stream.h"

namespace elinvar {

#ifdef __CUDACC__
using Gpu = CudaStream;
#else
using Gpu = EmulatedStream;
#endif

struct Grid {
  int64_t blocks;  // at most 2^31 - 1
  int threads = 256;
  size_t shared = 0;  // bytes of dynamic_shared()
};

// Throws Failure, which names the kernel, if a launch was refused.
void check_launch(const char* name, int error);

template <class... Parameters, class... Arguments>
void launch(Gpu& stream, const char* name, Grid grid, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (grid.blocks <= 0) return;
  invariant(grid.blocks <= INT32_MAX && grid.threads >= 1 && grid.threads <= 1024, "a grid that no GPU runs");
#ifdef __CUDACC__
  // More than 48 KiB must be requested, and memory that a kernel declares __shared__ itself (16 KiB at most) counts
  // too.
  if (grid.shared > 32 * 1024)
    check_launch(
        name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)));
  kernel<<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), grid.shared,
           static_cast<cudaStream_t>(stream.handle())>>>(arguments...);
  check_launch(name, cudaGetLastError());
#else
  static_cast<void>(stream);
  std::tuple<Parameters...> values(arguments...);
  __builtin_clear_padding(&values);  // a graph looks for addresses in the bytes
  emulation::perform(name, &values, sizeof values, [=] {
    emulation::run(grid.blocks, grid.threads, grid.shared, [&] { std::apply(kernel, values); });
  });
#endif
}

// Returns the number of multiprocessors of the current device. The emulated GPU is small, so that small tensors are cut
// in all ways.
inline int multiprocessors() {
  int count = 4;
#ifdef __CUDACC__
  int device = 0;
  check_launch("multiprocessors", cudaGetDevice(&device));
  check_launch("multiprocessors", cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
#endif
  return count;
}

// Blocks for n items, one per thread, in a grid whose threads take further items `grid_stride()` apart: at most twice
// the threads that the device runs at once.
inline int64_t blocks_for(int64_t n) {
  constexpr int64_t kThreads = Grid{}.threads, kThreadsAtOnce = 2048;
  return std::min(2 * kThreadsAtOnce / kThreads * multiprocessors(), (n + kThreads - 1) / kThreads);
}

// Blocks for n rows, one warp each.
inline int64_t warp_blocks(int64_t rows, int threads = 256) { return (rows * 32 + threads - 1) / threads; }

// The block's dynamic shared memory.
template <class T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ float4 shared_bytes[];
  return reinterpret_cast<T*>(shared_bytes);
#else
  return static_cast<T*>(emulation::shared_memory());
#endif
}

__device__ inline int64_t thread_of_grid() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_stride() { return int64_t{gridDim.x} * blockDim.x; }

// Temporary device memory of a kernel.
template <class T>
class DeviceScratch {
 public:
  DeviceScratch(Gpu& stream, int64_t count) : block_(stream.allocate(static_cast<size_t>(count) * sizeof(T))) {}
  T* data() const { return static_cast<T*>(block_.get()); }

 private:
  std::shared_ptr<void> block_;
};

}  // namespace elinvar
