#include <algorithm>

#include "autograd/reduce.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// Reduces the elements of each group that differ only in the reduced dimensions, in row-major order.
Tensor reduce_groups(const Tensor& x, const std::vector<int>& dims, bool keepdim, double (*step)(double, double)) {
  const int n = x.ndim();
  const auto reduced = [&](int d) { return dims.empty() || std::find(dims.begin(), dims.end(), d) != dims.end(); };
  Shape kept = x.shape(), shape;
  for (int d = 0; d < n; ++d) {
    if (reduced(d)) kept[d] = 1;
    if (!reduced(d)) shape.push_back(x.dim(d));
    else if (keepdim) shape.push_back(1);
  }
  const Shape strides = contiguous_strides(kept);
  Tensor y = Tensor::empty(shape, DType::f64);
  std::vector<bool> begun(static_cast<size_t>(y.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (int d = n - 1; d >= 0; --d) {
      if (!reduced(d)) at += rest % x.dim(d) * strides[d];
      rest /= x.dim(d);
    }
    double& out = y.data<double>()[at];
    out = begun[static_cast<size_t>(at)] ? step(out, x.data<double>()[i]) : x.data<double>()[i];
    begun[static_cast<size_t>(at)] = true;
  }
  return y;
}

double plus(double a, double b) { return a + b; }
double larger(double a, double b) { return std::max(a, b); }
double smaller(double a, double b) { return std::min(a, b); }

OpRow sum_row(const char* name, Shape shape, std::vector<int> dims, bool keepdim, Shape large,
              std::vector<std::pair<std::function<void()>, std::string>> errors = {}) {
  return {.name = name,
          .inputs = {{shape}},
          .op = [=](const Vars& v) { return sum(v[0], dims, keepdim); },
          .oracle = [=](const Tensors& t) { return reduce_groups(t[0], dims, keepdim, plus); },
          .large = {{large}},
          .errors = std::move(errors)};
}

const OpRows reduce_rows({
    sum_row("sum/all", {3, 5, 7}, {}, false, {61, 37, 129},
            {{[] {
                sum(Var(Tensor::zeros({2, 3})), {2});
              },
              "[sum] dimension 2 is out of range for 2 dimensions"},
             {[] {
                sum(Var(Tensor::zeros({2, 3})), {1, -1});
              },
              "[sum] dimension 1 is named twice"},
             {[] {
                sum(Var(Tensor::zeros({2, 3}, DType::u8)));
              },
              "[sum] float32 or float64 expected, got uint8"}}),
    sum_row("sum/rows", {4, 3, 70}, {2}, false, {5, 3, 9001}),
    sum_row("sum/columns", {67, 19}, {0}, false, {2500, 301}),
    sum_row("sum/channels", {3, 5, 4, 6}, {0, 1, 2}, true, {9, 33, 31, 17}),
    sum_row("sum/middle", {3, 70, 5}, {1}, true, {3, 1500, 40}),
    sum_row("sum/mixed", {3, 4, 5, 6, 2}, {0, 2, 4}, false, {9, 11, 19, 13, 15}),
    sum_row("sum/two_columns", {3, 4, 5, 6}, {0, 2}, false, {17, 3, 90, 33}),
    sum_row("sum/ones", {3, 1, 4, 1}, {1, 3}, false, {40, 1, 70, 1}),
    {.name = "mean/all",
     .inputs = {{{6, 7}}},
     .op = [](const Vars& v) { return mean(v[0]); },
     .oracle =
         [](const Tensors& t) {
           return Tensor::full({}, reduce_groups(t[0], {}, false, plus).item() / 42.0, DType::f64);
         },
     .errors = {{[] {
                   mean(Var(Tensor::zeros({0, 3})), {0});
                 },
                 "[mean] no elements to average in shape (0, 3)"}}},
    {.name = "mean/middle",
     .inputs = {{{3, 70, 4}}},
     .op = [](const Vars& v) { return mean(v[0], {1}, true); },
     .oracle =
         [](const Tensors& t) {
           Tensor y = reduce_groups(t[0], {1}, true, plus);
           for (double& v : y.span<double>()) v /= static_cast<double>(t[0].dim(1));
           return y;
         },
     .large = {{{4, 1200, 70}}}},
    {.name = "max",
     .inputs = {{{5, 9, 4}, Input::Kind::distinct}},
     .op = [](const Vars& v) { return max(v[0], 1); },
     .oracle = [](const Tensors& t) { return reduce_groups(t[0], {1}, false, larger); },
     .large = {{{30, 60, 31}, Input::Kind::distinct}},
     .errors = {{[] {
                   max(Var(Tensor::zeros({2, 0})), 1);
                 },
                 "[max] dimension 1 of shape (2, 0) has no elements"}}},
    {.name = "min/keepdim",
     .inputs = {{{5, 9}, Input::Kind::distinct}},
     .op = [](const Vars& v) { return min(v[0], -1, true); },
     .oracle = [](const Tensors& t) { return reduce_groups(t[0], {1}, true, smaller); },
     .large = {{{700, 101}, Input::Kind::distinct}}},
});

}  // namespace
}  // namespace elinvar::test
