// A tape and an optimiser by hand: fits y = 3 x - 1 by gradient descent.
//
// Operations on Vars are recorded as they are called; backward() walks the record back from the loss and stores a
// gradient in every Var that requires one. The update changes the values.
#include <cstdio>
#include <vector>

#include "elinvar/autograd/linear.h"
#include "elinvar/autograd/loss.h"
#include "elinvar/tensor/ops/pointwise.h"

using namespace elinvar;

int main() {
  const Tensor x = Tensor::from(std::vector<float>{-2, -1, 0, 1, 2, 3}, {6, 1});
  const Tensor y = Tensor::from(std::vector<float>{-7, -4, -1, 2, 5, 8}, {6, 1});
  Var weight(Tensor::zeros({1, 1}), /*requires_grad=*/true), bias(Tensor::zeros({1}), /*requires_grad=*/true);

  for (int step = 0; step < 300; ++step) {
    backward(mse_loss(linear(x, weight, bias), y));
    for (Var* parameter : {&weight, &bias}) {
      add_into(parameter->mutable_value(), mul(parameter->grad(), -0.02));
      parameter->clear_grad();
    }
  }
  std::printf("y = %.3f x %+.3f\n", weight.value().item(), bias.value().item());
}
