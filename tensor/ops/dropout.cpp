#include "tensor/ops/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/dropout.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>

#include "tensor/isa.h"
#include "tensor/graph.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
constexpr int64_t kBlocks = 1;  // Philox blocks computed at once

void random_words(const Rng& rng, uint32_t first_block, uint32_t* words) {
  const Random4 r = rng.block(first_block);
  std::copy(r.v, r.v + 4, words);
}
#else
using D64 = hn::ScalableTag<uint64_t>;
using D32 = hn::Repartition<uint32_t, D64>;
constexpr int64_t kBlocks = hn::MaxLanes(D64());

// Sets `words` to those of kBlocks consecutive blocks in the order of elements: the rounds of philox() in philox.h,
// with a block in each 64-bit lane. Only the lower half of a lane is a word; the upper half is never used.
void random_words(const Rng& rng, uint32_t first_block, uint32_t* words) {
  const D64 d;
  const auto product = [](auto a, auto b)
                           HWY_ATTR { return hn::MulEven(hn::BitCast(D32(), a), hn::BitCast(D32(), b)); };
  const auto m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  auto c0 = hn::Set(d, rng.step), c1 = hn::Set(d, rng.vrank), c2 = hn::Set(d, rng.op);
  auto c3 = hn::Iota(d, first_block);
  uint32_t k0 = static_cast<uint32_t>(rng.seed), k1 = static_cast<uint32_t>(rng.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto p0 = product(m0, c0), p1 = product(m1, c2);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, k1));
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const auto low = hn::Set(d, 0xffffffffu);
  const auto joined = [&](auto a, auto b) HWY_ATTR { return hn::Or(hn::And(a, low), hn::ShiftLeft<32>(b)); };
  hn::StoreInterleaved2(joined(c0, c1), joined(c2, c3), d, reinterpret_cast<uint64_t*>(words));
}
#endif
constexpr int64_t kElements = 4 * kBlocks;

// Computes elements [begin, end); begin is a multiple of 4.
void dropout_range(const DropoutArgs& a, int64_t begin, int64_t end) {
  const uint32_t threshold = static_cast<uint32_t>(std::ceil(a.p * 0x1p24));
  visit_element(a.x.dtype, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    const T* x = a.x.as<T>();
    T* y = a.y.as<T>();
    const T scale = static_cast<T>(1.0 / (1.0 - a.p));
    alignas(64) uint32_t words[kElements];  // written as pairs, little-endian
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
    ELINVAR_KERNEL(dropout_range, a.x.dtype)(a, b * kUnit, std::min(a.n, e * kUnit));
  });
}

namespace {

Tensor dropout_of(Tensor x, double p, const Rng& rng) {
  check_activation("dropout", x);
  check(p >= 0.0 && p < 1.0, "[dropout] a probability in [0, 1) expected, got {}", p);
  check(x.numel() <= int64_t{1} << 34, "[dropout] at most 2^34 elements, got {}", x.numel());
  x = x.to_contiguous();
  const In from = in(x);
  Tensor y = onto(x);
  on(y.device(), [&](auto& stream) {
    dropout(stream, DropoutArgs{from, out(y), y.numel(), p, rng, key_on_device(rng)});
  });
  return y;
}

const Op kDropout("dropout(x, p, rng) -> y", dropout_of);

}  // namespace

Tensor dropout(Tensor x, double p, const Rng& rng) { return kDropout(std::move(x), p, rng); }

}  // namespace elinvar
#endif
