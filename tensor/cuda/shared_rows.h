#pragma once
// Rows of bfloat16 in shared memory that are factors of products on tensor cores (tensor_core.h): asynchronous copies
// (PTX ISA, "cp.async") write them, and "ldmatrix" reads them. Places are bytes from the beginning of dynamic_shared().
//
// A row consists of chunks of 16 bytes, eight elements. A copy writes neighbouring chunks of a row; a matrix is the
// same chunk of eight rows. To avoid bank conflicts in both, chunk c of row r is stored at c ^ (r % 8). (Two rows of 32
// elements share the banks: there it is c ^ (r / 2 % 4).) Rows that are columns of another product need no second copy,
// because ldmatrix transposes.
//
// Under emulation a copy arrives when its thread waits and is NaN before, and bank conflicts are counted
// (tests/emulation/cuda.h).
#include "tensor/cuda/tensor_core.h"

namespace elinvar::HWY_NAMESPACE {

// The address in the form that instructions take.
__device__ inline uint32_t shared_address(uint32_t at) {
#ifdef __CUDACC__
  return static_cast<uint32_t>(__cvta_generic_to_shared(dynamic_shared<unsigned char>())) + at;
#else
  return at;
#endif
}

// Copies 16 or 4 bytes, aligned to as many, or writes zeros without reading `from` if they are not `there`.
template <int kBytes = 16>
__device__ void copy_async(uint32_t to, const void* from, bool there) {
  static_assert(kBytes == 16 || kBytes == 4);
#ifdef __CUDACC__
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                 : "memory");
#else
  emulation::copy_later(to, from, kBytes, there);
#endif
}

// Waits until the block's copies so far are visible to all its threads, and all have finished their earlier reads.
__device__ inline void await_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulation::wait_for_copies();
#endif
  __syncthreads();
}

// Ends a group of this thread's copies.
__device__ inline void end_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::end_copies();
#endif
}

// Waits for this thread's groups but the last kRunning.
template <int kRunning>
__device__ void await_copy_groups() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(kRunning) : "memory");
#else
  emulation::wait_for_copies(kRunning);
#endif
}

// Loads four matrices of 8 x 8. Lane l passes the place of row l % 8 of matrix l / 8. Lane 4 g + t gets elements 2 t
// and 2 t + 1 of row g of each, or, transposed, of column g.
template <bool kTransposed>
__device__ void load_matrices(uint32_t at, uint32_t (&pair)[4]) {
#ifdef __CUDACC__
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"(shared_address(at))
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"(shared_address(at))
                 : "memory");
#else
  emulation::load_matrices(at, kTransposed, pair);
#endif
}

// Rows of kSize elements, from `at` on.
template <int kSize>
struct SharedRows {
  static constexpr int kChunks = kSize / 8;
  static_assert(kChunks == 4 || kChunks % 8 == 0);
  uint32_t at;

  static constexpr uint32_t bytes(int rows) { return static_cast<uint32_t>(rows * kSize) * sizeof(bf16); }
  static __device__ uint32_t place(int row, int chunk) {
    const int turned = kChunks == 4 ? row / 2 % 4 : row % 8;
    return static_cast<uint32_t>((row * kChunks + (chunk ^ turned)) * 16);
  }

  // Rows `row` (a multiple of 16) to row + 15 as a factor A, with elements 16 k to 16 k + 15.
  __device__ FactorA rows(int row, int k) const {
    FactorA a;
    load_matrices<false>(place_of_lane(lane() % 16, lane() / 16, row, k), a.pair);
    return a;
  }
  // Rows `row` to row + 15 as columns 0 to 15 of B, with elements 16 k to 16 k + 15.
  __device__ TwoFactorsB rows_as_columns(int row, int k) const {
    uint32_t pair[4];
    load_matrices<false>(place_of_lane(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2, row, k), pair);
    return {{{pair[0], pair[1]}}, {{pair[2], pair[3]}}};
  }
  // Rows `row` to row + 15 as k of B, with elements 16 d to 16 d + 15 as its columns.
  __device__ TwoFactorsB columns(int row, int d) const {
    uint32_t pair[4];
    load_matrices<true>(place_of_lane(lane() % 16, lane() / 16, row, d), pair);
    return {{{pair[0], pair[1]}}, {{pair[2], pair[3]}}};
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  // Chunk 2 pair + chunk_of_two of row + row_of_16. Each lane has one address; all else is uniform. (If `at` were added
  // at the end, compilers would keep an address per pair in registers.)
  __device__ uint32_t place_of_lane(int row_of_16, int chunk_of_two, int row, int pair) const {
    return ((at + place(row_of_16, chunk_of_two)) ^ static_cast<uint32_t>(pair * 32)) + bytes(row);
  }
};

}  // namespace elinvar::HWY_NAMESPACE
