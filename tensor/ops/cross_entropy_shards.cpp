#include "tensor/ops/cross_entropy_shards.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/cross_entropy_shards.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/concat.h"
#include "tensor/trace.h"
#include "tensor/ops/cross_entropy_shards-inl.h"
#include "tensor/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
void terms_of_rows(const ShardTermsArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const int64_t n = a.classes;
  for (int64_t row = begin; row < end; ++row) {
    const auto term = [&](int64_t which) -> T& { return a.terms.as<T>()[which * a.rows + row]; };
    for (int64_t which = 0; which < ShardTerm::count; ++which) term(which) = T{0};
    const int64_t target = a.targets.as<int64_t>()[row], at = target - a.first;
    if (target == a.ignored) continue;
    const T* x = a.logits.as<T>() + row * n;
    const T m = row_max(x, n);
    const V vm = V::set(m);
    term(ShardTerm::max) = m;
    term(ShardTerm::sum) =
        row_sum<T>(n, [&](int64_t i, int64_t count) { return first_lanes<T>(exp(V::load(x + i, count) - vm), count); });
    if (a.smoothing != 0.0)
      term(ShardTerm::shifted_sum) =
          row_sum<T>(n, [&](int64_t i, int64_t count) { return first_lanes<T>(V::load(x + i, count) - vm, count); });
    if (at < 0 || at >= n) continue;
    term(ShardTerm::target) = x[at];
    const bool first = x[at] == m && std::find(x, x + at, m) == x + at;
    term(ShardTerm::top) = first ? T{2} : T{1};
  }
}

void cross_entropy_terms_rows(const ShardTermsArgs& a, int64_t begin, int64_t end) {
  visit_element(a.logits.dtype, [&](auto zero) { terms_of_rows<decltype(zero)>(a, begin, end); });
}

void cross_entropy_of_terms_rows(const ShardLossesArgs& a, int64_t begin, int64_t end) {
  visit_element(a.loss.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t row = begin; row < end; row += Vec<T>::kLanes)
      losses_of_rows<T>(a, row, std::min(end - row, Vec<T>::kLanes));
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(cross_entropy_terms_rows);
HWY_EXPORT(cross_entropy_of_terms_rows);

void cross_entropy_terms(CpuStream& stream, const ShardTermsArgs& a) {
  stream.parallel_for(a.rows, 4096 / (a.classes + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(cross_entropy_terms_rows, a.logits.dtype)(a, b, e);
  });
}

void cross_entropy_of_terms(CpuStream& stream, const ShardLossesArgs& a) {
  stream.parallel_for(a.rows, 1024, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(cross_entropy_of_terms_rows, a.loss.dtype)(a, b, e);
  });
}

namespace {

Tensor cross_entropy_terms_of(const Tensor& logits, const Tensor& targets, double smoothing, int64_t ignored,
                              const IndexShard& shard) {
  check_activation("cross_entropy", logits);
  check(logits.ndim() >= 1 && logits.dim(-1) == shard.count && shard.count > 0 && shard.first >= 0 &&
            shard.first + shard.count <= shard.whole,
        "[cross_entropy] logits of shape {} are no shard of {} of the {} classes from {} on", to_string(logits.shape()),
        shard.count, shard.whole, shard.first);
  Shape expected = logits.shape();
  expected.erase(expected.ndim() - 1);
  check(targets.shape() == expected, "[cross_entropy] logits {} need targets of shape {}, got {}",
        to_string(logits.shape()), to_string(expected), to_string(targets.shape()));
  const Tensor x = logits.to_contiguous(),
               checked = checked_index("cross_entropy", targets, shard.whole, ignored).to(x.device());
  const int64_t rows = expected.numel();
  Tensor terms = Tensor::empty({ShardTerm::count, rows}, computed_in(x.dtype()), x.device());
  on(x.device(), [&](auto& stream) {
    cross_entropy_terms(
        stream, ShardTermsArgs{in(x), in(checked), out(terms), rows, shard.first, shard.count, ignored, smoothing});
  });
  return terms;
}

ShardedCrossEntropy cross_entropy_of_terms_of(const std::vector<Tensor>& terms, const Tensor& targets, int64_t classes,
                                              double smoothing, int64_t ignored) {
  const auto shards = static_cast<int64_t>(terms.size());
  const int64_t rows = targets.numel();
  check(shards >= 1 && shards <= kMostShards, "[cross_entropy] 1 to {} shards expected, got {}", kMostShards, shards);
  check(smoothing >= 0.0 && smoothing <= 1.0, "[cross_entropy] label smoothing must be in [0, 1], got {}", smoothing);
  for (const Tensor& term : terms) {
    check_float("cross_entropy", term);
    check(term.shape() == Shape({ShardTerm::count, rows}), "[cross_entropy] numbers of shape {} expected, got {}",
          to_string(Shape({ShardTerm::count, rows})), to_string(term.shape()));
  }
  const Tensor all = concat(terms, 0);
  const auto of_row = [&](DType type) { return Tensor::empty({rows}, type, all.device()); };
  ShardedCrossEntropy y{
      {of_row(all.dtype()), checked_index("cross_entropy", targets, classes, ignored).to(all.device()),
       of_row(all.dtype()), of_row(all.dtype())},
      of_row(DType::u8)};
  on(all.device(), [&](auto& stream) {
    cross_entropy_of_terms(stream, ShardLossesArgs{in(all), out(y.result.loss), out(y.result.m), out(y.result.r),
                                                   out(y.top1), rows, shards, classes, smoothing});
  });
  return y;
}

const Op kCrossEntropyTerms("cross_entropy_terms(logits, targets, smoothing, ignored, shard) -> terms",
                            cross_entropy_terms_of);
const Op kCrossEntropyOfTerms("cross_entropy_of_terms(terms, targets, classes, smoothing, ignored)",
                              cross_entropy_of_terms_of);

}  // namespace

Tensor cross_entropy_terms(const Tensor& logits, const Tensor& targets, double smoothing, int64_t ignored,
                           const IndexShard& shard) {
  return kCrossEntropyTerms(logits, targets, smoothing, ignored, shard);
}

ShardedCrossEntropy cross_entropy_of_terms(const std::vector<Tensor>& terms, const Tensor& targets, int64_t classes,
                                           double smoothing, int64_t ignored) {
  return kCrossEntropyOfTerms(terms, targets, classes, smoothing, ignored);
}

}  // namespace elinvar
#endif
