#pragma once
// The part of CUDA's language that the project's kernels use, for the C++ compiler. Included ahead of a .cu file
// (-include), it makes the kernel's functions ordinary ones. Each CPU thread runs blocks one after another; the threads
// of a block are fibers that switch only at barriers and exchanges. Their order alternates between ascending and
// descending from one stretch between barriers to the next, so that a kernel without a necessary barrier gives wrong
// results here, too.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __shared__ static thread_local  // a CPU thread runs one block at a time

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

namespace elinvar::emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

// Does the work of a call, or keeps it for later while this thread records a graph (tests/emulation/graph.cpp), which
// finds addresses in the bytes of the arguments.
void perform(const char* name, const void* arguments, size_t bytes, std::function<void()> work);

// Runs a grid and returns when it is done.
void run(int64_t blocks, int threads, size_t shared, const std::function<void()>& kernel);

void* shared_memory();
void block_barrier();
void warp_barrier();
// Every thread of the warp offers a value and gets that of `lane`.
uint64_t exchange(uint64_t value, int lane);

// Places in shared memory are byte offsets from shared_memory(), multiples of 16.
//
// "ldmatrix" of four matrices: two elements of row lane / 4 of each, or of column lane / 4.
void load_matrices(uint32_t at, bool transposed, uint32_t (&pair)[4]);
// Each matrix is one access of eight rows of 16 bytes to 32 banks. Counts the accesses of all threads since the program
// began.
struct MatrixLoads {
  int64_t accesses, conflicts;  // repetitions of accesses because rows are in the same banks
};
MatrixLoads matrix_loads();
// "mma.m16n8k32" of integers of 8 bits, with a sign or without: D (16, 8) += A (16, 32) B (32, 8), in the layout of
// tensor/cuda/tensor_core.h.
void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool signed_a, bool signed_b);
// "cp.async" of 16 or 4 bytes, or of zeros. They arrive as late as possible, when this thread waits; until then the
// place has NaN.
void copy_later(uint32_t to, const void* from, int bytes, bool there);
void end_copies();                      // ends a group
void wait_for_copies(int running = 0);  // for all but the last groups; 0: for copies of no group, too

template <class T>
T shuffle(T value, int lane) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace elinvar::emulation

extern thread_local elinvar::emulation::Index threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { elinvar::emulation::block_barrier(); }
inline void __syncwarp(unsigned = 0xffffffffu) { elinvar::emulation::warp_barrier(); }
template <class T>
T __ldg(const T* p) {
  return *p;
}
// Blocks run on several CPU threads.
inline int atomicMax(int* p, int x) {
  const std::atomic_ref at(*p);
  int before = at.load();
  while (before < x && !at.compare_exchange_weak(before, x)) {
  }
  return before;
}
template <class T>
T __shfl_sync(unsigned, T v, int lane) {
  return elinvar::emulation::shuffle(v, lane & 31);
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int mask) {
  return elinvar::emulation::shuffle(v, static_cast<int>(threadIdx.x % 32) ^ mask);
}
template <class T>
T __shfl_down_sync(unsigned, T v, unsigned delta) {
  const int lane = static_cast<int>(threadIdx.x % 32 + delta);
  return elinvar::emulation::shuffle(v, lane < 32 ? lane : static_cast<int>(threadIdx.x % 32));
}
