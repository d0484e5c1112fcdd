#include <algorithm>
#include <cmath>

#include "autograd/reduce.h"
#include "tensor/ops/softmax.h"
#include "tests/op_row.h"

namespace elinvar::test {
namespace {

Tensor softmax_oracle(const Tensor& x, bool log_form) {
  Tensor y = Tensor::empty(x.shape(), DType::f64);
  const int64_t n = x.dim(-1);
  for (int64_t r = 0; r < x.numel() / n; ++r) {
    const double* a = x.data<double>() + r * n;
    double* b = y.data<double>() + r * n;
    const double m = *std::max_element(a, a + n);
    double l = 0.0;
    for (int64_t i = 0; i < n; ++i) l += std::exp(a[i] - m);
    for (int64_t i = 0; i < n; ++i) b[i] = log_form ? a[i] - m - std::log(l) : std::exp(a[i] - m) / l;
  }
  return y;
}

const OpRows rows({
    {.name = "softmax",
     .inputs = {{{3, 5, 17}}},
     .op = [](const Vars& v) { return softmax(v[0]); },
     .oracle = [](const Tensors& t) { return softmax_oracle(t[0], false); },
     .large = {{{37, 5003}}},
     .errors = {{[] {
                   softmax(Var(Tensor::zeros({2, 0})));
                 },
                 "[softmax] a last dimension with elements expected"},
                {[] {
                   softmax(Var(Tensor::zeros({2, 2}, DType::i32)));
                 },
                 "[softmax] float32 or float64 expected"},
                {[] {
                   softmax_backward(Tensor::zeros({2, 2}, DType::f64), Tensor::zeros({2, 2}));
                 },
                 "[softmax_backward] operands must have one dtype"}}},
    {.name = "log_softmax",
     .inputs = {{{4, 33}}},
     .op = [](const Vars& v) { return log_softmax(v[0]); },
     .oracle = [](const Tensors& t) { return softmax_oracle(t[0], true); },
     .large = {{{301, 130}}},
     .errors = {{[] { log_softmax(Var(Tensor::zeros({}))); }, "[log_softmax] a last dimension"}}},
});

}  // namespace
}  // namespace elinvar::test
