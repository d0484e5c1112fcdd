// Products in exact numerics. In float64 the same functions are portable, which is the reference: a row compares exact
// results and gradients with float64, and their bits over threads, instruction sets and layouts.
#include "autograd/conv.h"
#include "autograd/linear.h"
#include "autograd/norm.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

// A number of 14 bits differs from its value by at most 2^-13 of its row's largest magnitude; for normal inputs that is
// about 1e-4 of a typical one. In sums such errors grow as the sums themselves do. The largest differences measured,
// relative to the largest result, are 4e-4.
constexpr double kTolerance = 1e-3;

using Op = std::function<Var(const Vars&)>;

OpRow exact_row(const char* name, Inputs inputs, Inputs large, const Op& op) {
  return {.name = std::string("exact_") + name,
          .inputs = std::move(inputs),
          .op =
              [op](const Vars& v) {
                const PrecisionScope scope(v[0].dtype() == DType::f32 ? Precision::exact : Precision::portable);
                return op(v);
              },
          .oracle = [op](const Tensors& t) { return op(Vars(t.begin(), t.end())).value(); },
          .large = std::move(large),
          .tolerance = kTolerance,
          .large_tolerance = kTolerance};
}

OpRow exact_conv_row(const char* name, Inputs inputs, Inputs large, const Conv2dOptions& options) {
  return exact_row(name, std::move(inputs), std::move(large), [options](const Vars& v) {
    Conv2dOptions o = options;
    o.groups = v[0].dim(3) / v[1].dim(3);
    return conv2d(v[0], v[1], v.size() > 2 ? v[2] : Var{}, o);
  });
}

Var linear_of(const Vars& v) { return linear(v[0], v[1], v.size() > 2 ? v[2] : Var{}); }
Var matmul_of(const Vars& v) { return matmul(v[0], v[1]); }

Var attention_of(const Vars& v) { return attention(v[0], v[1], v[2]); }

// Products of values that are computed again for their gradients: x, gamma, beta and weights.
Var normalised_conv(const Vars& v) {
  const Var y = batch_norm(v[0], v[1], v[2], {.relu = true}).y;
  return conv2d(y, v[3], {}, {.padding = {1, 1}}) + y;
}
Var normalised_block(const Vars& v) {
  const Var y = batch_norm(conv2d(v[0], v[3]), v[1], v[2], {.relu = true, .residual = v[0]}).y;
  return conv2d(y, v[3]);
}
Var perceptron(const Vars& v) { return linear(gelu(linear(layer_norm(v[0], v[1], v[2]), v[3])), v[4]); }
Var gated(const Vars& v) { return linear(silu(linear(v[0], v[1])) * linear(v[0], v[2]), v[3]); }

const OpRows exact_product_rows({
    exact_row("linear", {{{6, 5}}, {{4, 5}}}, {{{101, 73}}, {{37, 73}}}, linear_of),
    exact_row("linear_bias", {{{2, 3, 5}}, {{7, 5}}, {{7}}}, {{{3, 100, 1100}}, {{90, 1100}}, {{90}}}, linear_of),
    exact_row("linear_vector", {{{33}}, {{8, 33}}, {{8}}}, {}, linear_of),
    exact_row("matmul", {{{5, 7}}, {{7, 3}}}, {{{70, 1100}}, {{1100, 130}}}, matmul_of),
    exact_row("matmul_column", {{{4, 1}}, {{1, 3}}}, {{{70, 1}}, {{1, 130}}}, matmul_of),
    exact_row("matmul_batched", {{{2, 3, 4, 5}}, {{2, 3, 5, 6}}}, {{{3, 2, 33, 65}}, {{3, 2, 65, 50}}}, matmul_of),
    exact_row("matmul_broadcast", {{{3, 4, 5}}, {{5, 6}}}, {{{4, 33, 65}}, {{65, 50}}}, matmul_of),
    exact_row("matmul_broadcast_both", {{{3, 1, 4, 5}}, {{2, 5, 6}}}, {}, matmul_of),
    exact_row("batch_norm_conv2d", {{{2, 5, 6, 3}}, {{3}}, {{3}}, {{3, 3, 3, 3}}},
              {{{3, 33, 31, 20}}, {{20}}, {{20}}, {{20, 3, 3, 20}}}, normalised_conv),
    exact_row("residual_block", {{{3, 4, 5, 6}}, {{6}}, {{6}}, {{6, 1, 1, 6}}},
              {{{5, 20, 21, 20}}, {{20}}, {{20}}, {{20, 1, 1, 20}}}, normalised_block),
    exact_row("perceptron", {{{6, 5}}, {{5}}, {{5}}, {{8, 5}}, {{5, 8}}},
              {{{3, 70, 33}}, {{33}}, {{33}}, {{132, 33}}, {{33, 132}}}, perceptron),
    exact_row("gated", {{{6, 5}}, {{8, 5}}, {{8, 5}}, {{5, 8}}}, {{{3, 70, 33}}, {{90, 33}}, {{90, 33}}, {{33, 90}}},
              gated),
    exact_conv_row("conv2d", {{{2, 5, 6, 3}}, {{4, 3, 3, 3}}, {{4}}}, {{{3, 33, 31, 20}}, {{24, 3, 3, 20}}, {{24}}},
                   {.padding = {1, 1}}),
    exact_conv_row("conv2d_strided", {{{1, 7, 8, 2}}, {{3, 3, 3, 2}}}, {{{2, 31, 30, 17}}, {{41, 3, 3, 17}}},
                   {.stride = {2, 2}, .padding = {1, 1}}),
    exact_conv_row("conv2d_first_layer", {{{1, 9, 9, 3}}, {{2, 7, 7, 3}}}, {{{2, 40, 41, 3}}, {{16, 7, 7, 3}}},
                   {.stride = {2, 2}, .padding = {3, 3}}),
    exact_conv_row("conv2d_1x1", {{{3, 5, 5, 4}}, {{3, 1, 1, 4}}}, {{{3, 15, 14, 80}}, {{72, 1, 1, 80}}}, {}),
    exact_conv_row("conv2d_dilated", {{{1, 7, 9, 2}}, {{3, 3, 3, 2}}}, {{{2, 20, 21, 17}}, {{9, 3, 3, 17}}},
                   {.padding = {2, 2}, .dilation = {2, 2}}),
    exact_conv_row("conv2d_grouped", {{{1, 5, 5, 8}}, {{4, 3, 3, 4}}}, {{{2, 12, 12, 48}}, {{32, 3, 3, 24}}},
                   {.padding = {1, 1}}),
    exact_row("attention", {{{2, 5, 2, 4}}, {{2, 5, 2, 4}}, {{2, 5, 2, 4}}},
              {{{1, 200, 2, 24}}, {{1, 200, 2, 24}}, {{1, 200, 2, 24}}}, attention_of),
    exact_row("attention_grouped", {{{2, 3, 4, 4}}, {{2, 5, 2, 4}}, {{2, 5, 2, 4}}},
              {{{2, 90, 4, 17}}, {{2, 100, 2, 17}}, {{2, 100, 2, 17}}}, attention_of),
    exact_row("attention_full", {{{1, 4, 2, 3}}, {{1, 6, 2, 3}}, {{1, 6, 2, 3}}}, {},
              [](const Vars& v) { return attention(v[0], v[1], v[2], {.causal = false}); }),
    exact_row("self_attention", {{{2, 5, 3, 2, 4}}}, {{{2, 130, 3, 3, 32}}},
              [](const Vars& v) { return self_attention(v[0]); }),
    // The channels of an odd group, and depthwise convolutions, are portable.
    exact_conv_row("conv2d_odd_groups", {{{1, 5, 5, 6}}, {{4, 3, 3, 3}}}, {{{2, 12, 12, 18}}, {{12, 3, 3, 9}}},
                   {.padding = {1, 1}}),
    exact_conv_row("conv2d_depthwise", {{{1, 5, 5, 4}}, {{4, 3, 3, 1}}}, {{{3, 15, 16, 50}}, {{50, 3, 3, 1}}},
                   {.stride = {2, 1}, .padding = {1, 1}}),
});

}  // namespace
}  // namespace elinvar::test
