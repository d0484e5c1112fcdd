#include "tensor/ops/top1_correct.h"

#include <algorithm>

#include "tensor/op_check.h"
#include "tensor/ops/index.h"
#include "tensor/trace.h"

namespace elinvar {

namespace {

// Returns whether is(value) holds for all of [begin, end). It tests 512 values at a time and stops early, because most
// rows fail soon.
template <class T, class Is>
bool all_of(const T* begin, const T* end, Is is) {
  constexpr int64_t kPiece = 512;
  while (begin < end) {
    const int64_t count = std::min<int64_t>(kPiece, end - begin);
    int32_t no = 0;
    for (int64_t i = 0; i < count; ++i) no += is(begin[i]) ? 0 : 1;
    if (no > 0) return false;
    begin += count;
  }
  return true;
}

}  // namespace

void top1_correct(CpuStream& stream, const Top1CorrectArgs& a) {
  visit_float(a.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.parallel_for(a.rows, 16384 / (a.classes + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const int64_t target = a.targets.as<int64_t>()[r];
        Top1 result = Top1::ignored;
        if (target != a.ignored) {
          const T *row = a.logits.as<T>() + r * a.classes, best = row[target];
          const bool first = best == best && all_of(row, row + target, [=](T v) { return v < best; }) &&
                             all_of(row + target + 1, row + a.classes, [=](T v) { return !(best < v); });
          result = first ? Top1::correct : Top1::wrong;
        }
        a.top1.as<uint8_t>()[r] = static_cast<uint8_t>(result);
      }
    });
  });
}

namespace {

Tensor top1_correct_of(const Tensor& logits, const Tensor& targets, int64_t ignored) {
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
    top1_correct(stream, Top1CorrectArgs{in(x), in(checked), out(y), expected.numel(), classes, ignored});
  });
  return y;
}

const Op kTop1Correct("hits(logits, targets, ignored) -> hits", top1_correct_of);

}  // namespace

Tensor top1_correct(const Tensor& logits, const Tensor& targets, int64_t ignored) {
  return kTop1Correct(logits, targets, ignored);
}

}  // namespace elinvar
