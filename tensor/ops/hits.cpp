#include "tensor/ops/hits.h"

#include "tensor/op_check.h"
#include "tensor/ops/index.h"
#include "tensor/trace.h"

namespace elinvar {

void hits(CpuStream& stream, const HitsArgs& a) {
  visit_float(a.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.parallel_for(a.rows, 16384 / (a.classes + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t target = a.targets.as<int64_t>()[r];
        Hit hit = Hit::ignored;
        if (target != a.ignored) {
          const T *row = a.logits.as<T>() + r * a.classes, best = row[target];
          // Nothing before it is as large, nothing after it is larger.
          bool first = best == best;
          for (int64_t c = 0; c < a.classes; ++c) first &= c < target ? row[c] < best : !(best < row[c]);
          hit = first ? Hit::right : Hit::wrong;
        }
        a.hits.as<uint8_t>()[r] = static_cast<uint8_t>(hit);
      }
    });
  });
}

namespace {

Tensor hits_of(const Tensor& logits, const Tensor& targets, int64_t ignored) {
  check_activation("hits", logits);
  check(logits.ndim() >= 1 && logits.dim(-1) > 0, "[hits] a last dimension of classes expected, shape is {}",
        to_string(logits.shape()));
  Shape expected = logits.shape();
  expected.erase(expected.ndim() - 1);
  check(targets.shape() == expected, "[hits] logits {} need targets of shape {}, got {}", to_string(logits.shape()),
        to_string(expected), to_string(targets.shape()));
  const Tensor x = logits.to_contiguous();
  const int64_t classes = x.dim(-1);
  const Tensor checked = checked_index("hits", targets, classes, ignored).to(x.device());
  Tensor y = Tensor::empty(expected, DType::u8, x.device());
  on(x.device(), [&](auto& stream) {
    hits(stream, HitsArgs{in(x), in(checked), out(y), expected.numel(), classes, ignored});
  });
  return y;
}

const Op kHits("hits(logits, targets, ignored) -> hits", hits_of);

}  // namespace

Tensor hits(const Tensor& logits, const Tensor& targets, int64_t ignored) { return kHits(logits, targets, ignored); }

}  // namespace elinvar
