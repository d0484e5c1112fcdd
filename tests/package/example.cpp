// Fits y = 3 x - 1 by gradient descent with an installed Elinvar.
#include <cmath>
#include <cstdio>
#include <vector>

#include "autograd/linear.h"
#include "autograd/loss.h"
#include "tensor/ops/pointwise.h"

using namespace elinvar;

int main() {
  const Tensor x = Tensor::from(std::vector<float>{-2, -1, 0, 1, 2, 3}, {6, 1});
  const Tensor y = Tensor::from(std::vector<float>{-7, -4, -1, 2, 5, 8}, {6, 1});
  Var weight(Tensor::zeros({1, 1}), true), bias(Tensor::zeros({1}), true);
  for (int step = 0; step < 300; ++step) {
    backward(mse_loss(linear(x, weight, bias), y));
    for (Var* v : {&weight, &bias}) {
      add_into(v->mutable_value(), mul(v->grad(), Tensor::scalar(-0.02)));
      v->clear_grad();
    }
  }
  const double w = weight.value().item(), b = bias.value().item();
  std::printf("y = %.3f x %+.3f\n", w, b);
  return std::abs(w - 3) < 1e-3 && std::abs(b + 1) < 1e-3 ? 0 : 1;
}
