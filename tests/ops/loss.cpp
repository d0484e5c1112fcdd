#include <algorithm>
#include <cmath>

#include "tests/ops/op_inputs.h"
#include "autograd/loss.h"
#include "autograd/shape.h"
#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/top1_correct.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

using Kind = Input::Kind;

Tensor cross_entropy_oracle(const Tensors& t, double smoothing, int64_t ignored) {
  const int64_t n = t[0].dim(-1);
  double total = 0.0;
  for (int64_t r = 0; r < t[1].numel(); ++r) {
    const double* s = t[0].data<double>() + r * n;
    const int64_t target = t[1].data<int64_t>()[r];
    if (target == ignored) continue;
    const double m = *std::max_element(s, s + n);
    double l = 0.0;
    for (int64_t j = 0; j < n; ++j) l += std::exp(s[j] - m);
    for (int64_t j = 0; j < n; ++j) {
      const double q = smoothing / static_cast<double>(n) + (j == target ? 1.0 - smoothing : 0.0);
      total -= q * (s[j] - m - std::log(l));
    }
  }
  return Tensor::full({}, total, DType::f64);
}

Tensor top1_oracle(const Tensors& t, int64_t ignored) {
  const int64_t n = t[0].dim(-1);
  Tensor y = Tensor::empty(t[1].shape(), DType::f64);
  for (int64_t r = 0; r < t[1].numel(); ++r) {
    const double* s = t[0].data<double>() + r * n;
    const int64_t target = t[1].data<int64_t>()[r];
    y.data<double>()[r] = target == ignored ? 0.0 : std::max_element(s, s + n) - s == target ? 2.0 : 1.0;
  }
  return y;
}

// Rounds to integers, so that few values differ.
Tensor coarse(const Tensor& x) { return x.to(DType::i32).to(x.dtype()); }

// The logits in `count` shards.
ShardedLogits in_shards(const Var& logits, int count) {
  ShardedLogits all{.parts = {}, .shards = {.count = count}, .classes = logits.dim(-1)};
  for (int s = 0; s < count; ++s) {
    const auto [first, classes, whole] = shard_of(logits.dim(-1), s, count);
    all.parts.push_back(slice(logits, -1, first, first + classes));
  }
  return all;
}

// Two rows of three logits, with saved values as a file may hold them.
void backward_of(const Tensor& targets, const Tensor& m) {
  cross_entropy_backward(Tensor::zeros({}), Tensor::zeros({2, 3}), {Tensor(), targets, m, Tensor::zeros({2})}, 0.0,
                         -100);
}

const OpRows loss_rows({
    {.name = "cross_entropy",
     .inputs = {{{3, 7, 19}}, {{3, 7}, Kind::index, 19}},
     .op = [](const Vars& v) { return cross_entropy(v[0], v[1].value()); },
     .oracle = [](const Tensors& t) { return cross_entropy_oracle(t, 0.0, -100); },
     .large = {{{70, 5003}}, {{70}, Kind::index, 5003}},
     .errors = {{[] {
                   cross_entropy(zeros({2, 3}), Tensor::zeros({3}, DType::i32));
                 },
                 "[cross_entropy] logits (2, 3) need targets of shape (2,), got (3,)"},
                {[] {
                   cross_entropy(zeros({2, 3}), Tensor::full({2}, 3, DType::i32));
                 },
                 "[cross_entropy] index 3 at position 0 of shape (2,) is outside [0, 3)"},
                {[] {
                   cross_entropy(zeros({2, 3}), Tensor::full({2}, -1, DType::i64));
                 },
                 "[cross_entropy] index -1"},
                {[] {
                   cross_entropy(zeros({2, 3}), Tensor::zeros({2}));
                 },
                 "[cross_entropy] indices must be int32 or int64"},
                {[] {
                   cross_entropy(zeros({2, 3}), Tensor::zeros({2}, DType::i32), {.label_smoothing = 1.5});
                 },
                 "[cross_entropy] label smoothing must be in [0, 1], got 1.5"},
                {[] {
                   const Tensor x = Tensor::zeros({2, 3});
                   cross_entropy_backward(Tensor::zeros({2}), x,
                                          cross_entropy(x, Tensor::zeros({2}, DType::i32), 0.0, -100), 0.0, -100);
                 },
                 "[cross_entropy_backward] one element expected"},
                {[] { backward_of(Tensor::full({2}, 3, DType::i64), Tensor::zeros({2})); },
                 "[cross_entropy_backward] index 3 at position 0 of shape (2,) is outside [0, 3)"},
                {[] { backward_of(Tensor::zeros({1}, DType::i64), Tensor::zeros({2})); },
                 "[cross_entropy_backward] the targets must be those that were saved"},
                {[] { backward_of(Tensor::zeros({2}, DType::i32), Tensor::zeros({2})); },
                 "[cross_entropy_backward] the targets must be those that were saved"},
                {[] { backward_of(Tensor::zeros({2}, DType::i64), Tensor::zeros({1})); },
                 "[cross_entropy_backward] m must be float32 of shape (2,), got float32 of shape (1,)"}}},
    {.name = "cross_entropy/smoothing",
     .inputs = {{{21, 10}}, {{21}, Kind::index, 10}},
     .op = [](const Vars& v) { return cross_entropy(v[0], v[1].value(), {.label_smoothing = 0.1}); },
     .oracle = [](const Tensors& t) { return cross_entropy_oracle(t, 0.1, -100); },
     .large = {{{301, 1000}}, {{301}, Kind::index, 1000}}},
    {.name = "cross_entropy/ignored",
     .inputs = {{{40, 5}}, {{40}, Kind::index, 5}},
     .op = [](const Vars& v) { return cross_entropy(v[0], v[1].value(), {.label_smoothing = 0.2, .ignore_index = 2}); },
     .oracle = [](const Tensors& t) { return cross_entropy_oracle(t, 0.2, 2); }},
    {.name = "cross_entropy/shards",
     .inputs = {{{3, 7, 19}}, {{3, 7}, Kind::index, 19}},
     .op = [](const Vars& v) { return cross_entropy(in_shards(v[0], 4), v[1].value()).loss; },
     .oracle = [](const Tensors& t) { return cross_entropy_oracle(t, 0.0, -100); },
     .large = {{{70, 5003}}, {{70}, Kind::index, 5003}},
     .errors = {{[] {
                   cross_entropy(in_shards(zeros({2, 3}), 2), Tensor::zeros({3}, DType::i32));
                 },
                 "[cross_entropy] logits (2, 1) need targets of shape (2,), got (3,)"},
                {[] {
                   cross_entropy(in_shards(zeros({2, 3}), 2), Tensor::full({2}, 3, DType::i32));
                 },
                 "[cross_entropy] index 3 at position 0 of shape (2,) is outside [0, 3)"},
                {[] {
                   cross_entropy(in_shards(zeros({2, 3}), 2), Tensor::zeros({2}, DType::i32), {.label_smoothing = 2});
                 },
                 "[cross_entropy] label smoothing must be in [0, 1], got 2"},
                {[] {
                   ShardedLogits logits = in_shards(zeros({2, 3}), 3);
                   logits.parts.pop_back();
                   cross_entropy(logits, Tensor::zeros({2}, DType::i32));
                 },
                 "[cross_entropy] logits of 3 shards expected, got 2"},
                {[] {
                   cross_entropy_terms(Tensor::zeros({2, 3}), Tensor::zeros({2}, DType::i32), 0, -100, {2, 3, 4});
                 },
                 "[cross_entropy] logits of shape (2, 3) are no shard of 3 of the 4 classes from 2 on"},
                {[] {
                   cross_entropy_of_terms({Tensor::zeros({5, 3})}, Tensor::zeros({2}, DType::i32), 4, 0, -100);
                 },
                 "[cross_entropy] numbers of shape (5, 2) expected, got (5, 3)"},
                {[] { cross_entropy_of_terms({}, Tensor::zeros({2}, DType::i32), 4, 0, -100); },
                 "[cross_entropy] 1 to 64 shards expected, got 0"}}},
    {.name = "cross_entropy/shards_ignored_smoothing",
     .inputs = {{{40, 5}}, {{40}, Kind::index, 5}},
     .op =
         [](const Vars& v) {
           return cross_entropy(in_shards(v[0], 3), v[1].value(), {.label_smoothing = 0.2, .ignore_index = 2}).loss;
         },
     .oracle = [](const Tensors& t) { return cross_entropy_oracle(t, 0.2, 2); },
     .large = {{{301, 1000}}, {{301}, Kind::index, 1000}}},
    {.name = "top1_correct/shards",
     .inputs = {{{60, 7}}, {{60}, Kind::index, 7}},
     .op =
         [](const Vars& v) {
           return Var(cross_entropy(in_shards(coarse(v[0].value()), 3), v[1].value(), {.ignore_index = 2}).top1);
         },
     .oracle =
         [](const Tensors& t) {
           return top1_oracle({coarse(t[0]), t[1]}, 2);
         },
     .differentiable = false},
    {.name = "hits",
     .inputs = {{{3, 7, 5}}, {{3, 7}, Kind::index, 5}},
     .op = [](const Vars& v) { return Var(top1_correct(v[0].value(), v[1].value(), 2)); },
     .oracle = [](const Tensors& t) { return top1_oracle(t, 2); },
     .large = {{{901, 71}}, {{901}, Kind::index, 71}},
     .errors = {{[] {
                   top1_correct(Tensor::zeros({2, 3}), Tensor::zeros({3}, DType::i32), -1);
                 },
                 "[hits] logits (2, 3) need targets of shape (2,), got (3,)"},
                {[] {
                   top1_correct(Tensor::zeros({2, 3}), Tensor::full({2}, 3, DType::i32), -1);
                 },
                 "[hits] index 3 at position 0"}},
     .differentiable = false},
    {.name = "hits/ties",
     .inputs = {{{60, 3}}, {{60}, Kind::index, 3}},
     .op = [](const Vars& v) { return Var(top1_correct(coarse(v[0].value()), v[1].value(), -100)); },
     .oracle =
         [](const Tensors& t) {
           return top1_oracle({coarse(t[0]), t[1]}, -100);
         },
     .differentiable = false},
    {.name = "mse_loss",
     .inputs = {{{5, 31}}, {{5, 31}}},
     .op = [](const Vars& v) { return mse_loss(v[0], v[1]); },
     .oracle =
         [](const Tensors& t) {
           double s = 0.0;
           for (int64_t i = 0; i < t[0].numel(); ++i) s += std::pow(t[0].data<double>()[i] - t[1].data<double>()[i], 2);
           return Tensor::full({}, s, DType::f64);
         },
     .large = {{{61, 701}}, {{61, 701}}},
     .errors = {{[] {
                   mse_loss(zeros({2, 3}), zeros({3}));
                 },
                 "[mse_loss] shapes (2, 3) and (3,) must be equal"}}},
});

}  // namespace
}  // namespace elinvar::test
