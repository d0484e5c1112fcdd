#include "tensor/ops/experts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/experts.cpp"
#include <hwy/foreach_target.h>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/reduce-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

void dispatch_rows(const DispatchArgs& a, int64_t begin, int64_t end) {
  visit_element(a.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const T* weights = a.weight.as<T>();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t choice = a.choice_of(row), n = a.cols;
      T* y = a.y.as<T>() + row * n;
      if (choice < 0) {
        for (int64_t c = 0; c < n; c += V::kLanes) V::set(T{0}).store(y + c, n - c);
        continue;
      }
      const T* x = a.x.as<T>() + choice % a.tokens * n;
      if (weights == nullptr) {
        for (int64_t c = 0; c < n; c += V::kLanes) V::load(x + c, n - c).store(y + c, n - c);
        continue;
      }
      const V w = V::set(weights[choice]);
      for (int64_t c = 0; c < n; c += V::kLanes) (V::load(x + c, n - c) * w).store(y + c, n - c);
    }
  });
}

void combine_rows(const CombineArgs& a, int64_t begin, int64_t end) {
  visit_element(a.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const T* weights = a.weight.as<T>();
    for (int64_t t = begin; t < end; ++t) {
      T* x = a.x.as<T>() + t * a.cols;
      bool found = false;  // a row for an earlier choice
      for (int64_t j = 0; j < a.chosen; ++j) {
        const int64_t choice = j * a.tokens + t, row = a.row_of(choice);
        if (row < 0) continue;
        const T* y = a.y.as<T>() + row * a.cols;
        const V w = V::set(weights ? weights[choice] : T{1});
        for (int64_t c = 0; c < a.cols; c += V::kLanes) {
          const int64_t n = a.cols - c;
          const V acc = found ? V::load(x + c, n) : V::set(T{0}), term = V::load(y + c, n);
          (weights ? fma(w, term, acc) : acc + term).store(x + c, n);
        }
        found = true;
      }
      for (int64_t c = 0; !found && c < a.cols; c += V::kLanes) V::set(T{0}).store(x + c, a.cols - c);
    }
  });
}

void combine_weights(const CombineWeightArgs& a, int64_t begin, int64_t end) {
  visit_element(a.dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t cols = a.of.cols;
    const auto load = [](const T* x) { return [x](int64_t i, int64_t count) { return Vec<T>::load(x + i, count); }; };
    for (int64_t choice = begin; choice < end; ++choice) {
      const int64_t row = a.of.row_of(choice);
      T& dot = a.dweight.as<T>()[choice];
      if (row < 0) dot = T{0};
      else dot = row_dot<T>(cols, load(a.dx.as<T>() + choice % a.of.tokens * cols), load(a.of.y.as<T>() + row * cols));
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(dispatch_rows);
HWY_EXPORT(combine_rows);
HWY_EXPORT(combine_weights);

void dispatch(CpuStream& stream, const DispatchArgs& a) {
  stream.parallel_for(a.experts * a.capacity, 16384 / (a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(dispatch_rows, a.x.dtype)(a, b, e);
  });
}

void combine(CpuStream& stream, const CombineArgs& a) {
  stream.parallel_for(a.tokens, 16384 / (a.chosen * a.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(combine_rows, a.y.dtype)(a, b, e);
  });
}

void combine_weight(CpuStream& stream, const CombineWeightArgs& a) {
  stream.parallel_for(a.of.chosen * a.of.tokens, 16384 / (a.of.cols + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(combine_weights, a.dx.dtype)(a, b, e);
  });
}

namespace {

void check_tokens(const char* op, const Tensor& x) {
  check_float(op, x);
  check(x.ndim() == 2, "[{}] rows of tokens (tokens, channels) expected, shape is {}", op, to_string(x.shape()));
}

void check_experts(const char* op, const IndexShard& shard) {
  check(shard.first >= 0 && shard.count > 0 && shard.first + shard.count <= shard.whole,
        "[{}] experts [{}, {}) are no shard of {}", op, shard.first, shard.first + shard.count, shard.whole);
}

Tensor dispatch_of(const Tensor& input, const Tensor& weight, const Tensor& order, const Tensor& start,
                   int64_t capacity, const IndexShard& shard) {
  check_tokens("dispatch", input);
  check_experts("dispatch", shard);
  check(capacity > 0, "[dispatch] a capacity above 0 expected, got {}", capacity);
  const Tensor x = input.to_contiguous();
  const int64_t tokens = x.dim(0), cols = x.dim(1), choices = order.numel();
  check(tokens > 0 && choices % tokens == 0, "[dispatch] {} choices of {} tokens", choices, tokens);
  const Tensor numbers = index_operand("dispatch", "order", order, {choices}, x),
               starts = index_operand("dispatch", "start", start, {shard.whole + 1}, x);
  Tensor w;
  if (weight.defined()) w = operand("dispatch", "weight", weight, {choices / tokens, tokens}, x);
  Tensor y = Tensor::empty({shard.count, capacity, cols}, x.dtype(), x.device());
  on(x.device(), [&](auto& stream) {
    dispatch(stream, DispatchArgs{in(x), w.defined() ? in(w) : In{}, in(numbers), in(starts), out(y), tokens, choices,
                                  cols, shard.first, shard.count, capacity});
  });
  return y;
}

// The arguments of both functions of rows of experts, and what they point to.
struct Combined {
  Tensor y, weight, expert, position;
  CombineArgs args{};
};

Combined combined(const char* op, const Tensor& input, const Tensor& weight, const Tensor& expert,
                  const Tensor& position, const IndexShard& shard) {
  check_float(op, input);
  check_experts(op, shard);
  check(input.ndim() == 3 && input.dim(0) == shard.count && input.dim(1) > 0,
        "[{}] rows of experts ({}, capacity, channels) expected, shape is {}", op, shard.count,
        to_string(input.shape()));
  check(expert.ndim() == 2, "[{}] expert (k, tokens) expected, shape is {}", op, to_string(expert.shape()));
  Combined c;
  c.y = input.to_contiguous();
  c.expert = index_operand(op, "expert", expert, expert.shape(), c.y);
  c.position = index_operand(op, "position", position, expert.shape(), c.y);
  if (weight.defined()) c.weight = operand(op, "weight", weight, expert.shape(), c.y);
  c.args = {in(c.y),
            c.weight.defined() ? in(c.weight) : In{},
            in(c.expert),
            in(c.position),
            {},
            expert.dim(1),
            expert.dim(0),
            c.y.dim(2),
            shard.first,
            shard.count,
            c.y.dim(1)};
  return c;
}

Tensor combine_of(const Tensor& y, const Tensor& weight, const Tensor& expert, const Tensor& position,
                  const IndexShard& shard) {
  Combined c = combined("combine", y, weight, expert, position, shard);
  Tensor x = Tensor::empty({c.args.tokens, c.args.cols}, y.dtype(), y.device());
  c.args.x = out(x);
  on(y.device(), [&](auto& stream) { combine(stream, c.args); });
  return x;
}

Tensor combine_weight_of(const Tensor& gradient, const Tensor& y, const Tensor& expert, const Tensor& position,
                         const IndexShard& shard) {
  const Combined c = combined("combine_weight", y, {}, expert, position, shard);
  check_same_dtype("combine_weight", gradient, y);
  check(gradient.shape() == Shape({c.args.tokens, c.args.cols}),
        "[combine_weight] a gradient of shape ({}, {}) expected, got {}", c.args.tokens, c.args.cols,
        to_string(gradient.shape()));
  const Tensor dx = gradient.to_contiguous();
  Tensor dweight = Tensor::empty(expert.shape(), y.dtype(), y.device());
  on(y.device(), [&](auto& stream) { combine_weight(stream, CombineWeightArgs{in(dx), c.args, out(dweight)}); });
  return dweight;
}

const Op kDispatch("dispatch(x, weight, order, start, capacity, shard) -> y", dispatch_of);
const Op kCombine("combine(y, weight, expert, position, shard) -> x", combine_of);
const Op kCombineWeight("combine_weight(dx, y, expert, position, shard) -> dweight", combine_weight_of);

}  // namespace

Tensor dispatch(const Tensor& x, const Tensor& weight, const Tensor& order, const Tensor& start, int64_t capacity,
                const IndexShard& shard) {
  return kDispatch(x, weight, order, start, capacity, shard);
}

Tensor combine(const Tensor& y, const Tensor& weight, const Tensor& expert, const Tensor& position,
               const IndexShard& shard) {
  return kCombine(y, weight, expert, position, shard);
}

Tensor combine_weight(const Tensor& dx, const Tensor& y, const Tensor& expert, const Tensor& position,
                      const IndexShard& shard) {
  return kCombineWeight(dx, y, expert, position, shard);
}

}  // namespace elinvar
#endif
