#include "tensor/cuda/kernel.h"

#include "tensor/cuda/elements.h"
#include "tensor/cuda/many.h"
#include "tensor/ops/copies.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

constexpr int kThreads = 256, kPieces = 4;                    // a thread copies pieces of 16 bytes, whose loads overlap
constexpr int64_t kBytes = int64_t{16} * kThreads * kPieces;  // bytes per block

__global__ void copy_bytes(Many<CopiesArgs> all) {
  const auto [a, block] = all.find();
  const int64_t first = block * kBytes, bytes = a.bytes - first < kBytes ? a.bytes - first : kBytes;
  const char* from = static_cast<const char*>(a.from) + first;
  char* to = static_cast<char*>(a.to) + first;
  const bool aligned = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0;
  const int pieces = aligned ? static_cast<int>(bytes / 16) : 0, thread = static_cast<int>(threadIdx.x);
  Some<float, 4> piece[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (p * kThreads + thread < pieces) piece[p] = reinterpret_cast<const Some<float, 4>*>(from)[p * kThreads + thread];
#pragma unroll
  for (int p = 0; p < kPieces; ++p)
    if (p * kThreads + thread < pieces) reinterpret_cast<Some<float, 4>*>(to)[p * kThreads + thread] = piece[p];
  for (int64_t i = int64_t{16} * pieces + thread; i < bytes; i += kThreads) to[i] = from[i];
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void copies(Gpu& stream, std::span<const CopiesArgs> all) {
  using namespace HWY_NAMESPACE;
  launch_many(
      stream, "copies", all, [](const CopiesArgs& a) { return (a.bytes + kBytes - 1) / kBytes; }, copy_bytes);
}

}  // namespace elinvar
