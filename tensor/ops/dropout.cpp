#include "tensor/ops/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/dropout.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>

#include "tensor/op_check.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

constexpr int kBlocks = 16;           // Philox blocks computed side by side
constexpr int kElements = 4 * kBlocks;

// The words of kBlocks consecutive blocks in the order of elements. The same rounds as philox() in philox.h, with
// the loop over blocks innermost so that the compiler can make vectors of it.
void random_words(const Rng& rng, uint32_t first_block, uint32_t* words) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int j = 0; j < kBlocks; ++j) {
    c0[j] = rng.step;
    c1[j] = rng.vrank;
    c2[j] = rng.op;
    c3[j] = first_block + static_cast<uint32_t>(j);
  }
  uint32_t k0 = static_cast<uint32_t>(rng.seed), k1 = static_cast<uint32_t>(rng.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kBlocks; ++j) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[j], p1 = uint64_t{0xCD9E8D57u} * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ k0;
      c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ k1;
      c1[j] = static_cast<uint32_t>(p1);
      c3[j] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int j = 0; j < kBlocks; ++j) {
    words[4 * j] = c0[j];
    words[4 * j + 1] = c1[j];
    words[4 * j + 2] = c2[j];
    words[4 * j + 3] = c3[j];
  }
}

// Elements [begin, end); begin is a multiple of 4.
void dropout_range(const DropoutArgs& a, int64_t begin, int64_t end) {
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(a.p * 0x1p24));
  visit_float(a.x.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    const T* x = a.x.as<T>();
    T* y = a.y.as<T>();
    const T scale = static_cast<T>(1.0 / (1.0 - a.p));
    alignas(64) uint32_t words[kElements];
    for (int64_t i = begin; i < end; i += kElements) {
      random_words(a.rng, static_cast<uint32_t>(i / 4), words);
      const int64_t n = std::min<int64_t>(kElements, end - i);
      for (int64_t j = 0; j < n; ++j) y[i + j] = (words[j] >> 8) >= threshold ? x[i + j] * scale : T{0};
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(dropout_range);

void dropout(CpuStream& stream, const DropoutArgs& a) {
  constexpr int64_t kUnit = 64;
  stream.parallel_for((a.n + kUnit - 1) / kUnit, 128, [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(dropout_range)(a, b * kUnit, std::min(a.n, e * kUnit));
  });
}

Tensor dropout(const Tensor& input, double p, const Rng& rng) {
  check_float("dropout", input);
  check(p >= 0.0 && p < 1.0, "[dropout] a probability in [0, 1) expected, got {}", p);
  check(input.numel() <= int64_t{1} << 34, "[dropout] at most 2^34 elements, got {}", input.numel());
  const Tensor x = input.to_contiguous();
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  on(x.device(), [&](auto& stream) { dropout(stream, DropoutArgs{in(x), out(y), x.numel(), p, rng}); });
  return y;
}

}  // namespace elinvar
#endif
