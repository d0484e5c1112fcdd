#include <cmath>

#include "autograd/lstm.h"
#include "tensor/ops/lstm.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

Tensor lstm_oracle(const Tensors& t) {
  const Tensor &gates = t[0], &weight = t[1], &bias = t[2];
  const int64_t time = gates.dim(0), rows = gates.dim(1), n = weight.dim(1);
  Tensor h = Tensor::empty({time, rows, n}, DType::f64);
  std::vector<double> c(static_cast<size_t>(rows * n));
  for (int64_t step = 0; step < time; ++step)
    for (int64_t r = 0; r < rows; ++r) {
      const double* before = h.data<double>() + ((step - 1) * rows + r) * n;
      const auto gate = [&](int64_t k, int64_t j) {
        const int64_t out = k * n + j;
        double sum = gates.data<double>()[(step * rows + r) * 4 * n + out] + bias.data<double>()[out];
        for (int64_t i = 0; step > 0 && i < n; ++i) sum += weight.data<double>()[out * n + i] * before[i];
        return sum;
      };
      for (int64_t j = 0; j < n; ++j) {
        double& cell = c[static_cast<size_t>(r * n + j)];
        cell = logistic(gate(1, j)) * cell + logistic(gate(0, j)) * std::tanh(gate(2, j));
        h.data<double>()[(step * rows + r) * n + j] = logistic(gate(3, j)) * std::tanh(cell);
      }
    }
  return h;
}

const auto run_lstm = [](const Vars& v) { return lstm(v[0], v[1], v[2]); };

const OpRows recurrent_rows({
    {.name = "lstm",
     .inputs = {{{5, 3, 20}}, {{20, 5}}, {{20}}},
     .op = run_lstm,
     .oracle = lstm_oracle,
     .large = {{{4, 40, 148}}, {{148, 37}}, {{148}}},
     .errors = {{[] {
                   lstm(Var(Tensor::zeros({0, 3, 20})), Var(Tensor::zeros({20, 5})), Var(Tensor::zeros({20})));
                 },
                 "[lstm] gates (T, N, 4 H), T > 0, expected, shape is (0, 3, 20)"},
                {[] {
                   lstm(Var(Tensor::zeros({2, 3, 18})), Var(Tensor::zeros({18, 5})), Var(Tensor::zeros({18})));
                 },
                 "[lstm] gates (T, N, 4 H), T > 0, expected, shape is (2, 3, 18)"},
                {[] {
                   lstm(Var(Tensor::zeros({2, 3, 20})), Var(Tensor::zeros({20, 4})), Var(Tensor::zeros({20})));
                 },
                 "[lstm] the weight must be float32 of shape (20, 5), got float32 of shape (20, 4)"},
                {[] {
                   lstm(Var(Tensor::zeros({2, 3, 20})), Var(Tensor::zeros({20, 5})), Var(Tensor::zeros({5})));
                 },
                 "[lstm] the bias must be float32 of shape (20,), got float32 of shape (5,)"},
                {[] {
                   lstm_backward(Tensor::zeros({2, 3, 5}), Tensor::zeros({20, 5}), Tensor::zeros({2, 3, 5}),
                                 Tensor::zeros({2, 3, 5}));
                 },
                 "[lstm_backward] the gates must be float32 of shape (2, 3, 20), got float32 of shape (2, 3, 5)"}}},
    {.name = "lstm/one step", .inputs = {{{1, 2, 12}}, {{12, 3}}, {{12}}}, .op = run_lstm, .oracle = lstm_oracle},
});

}  // namespace
}  // namespace elinvar::test
