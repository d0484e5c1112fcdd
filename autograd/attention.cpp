#include "tensor/ops/attention.h"

#include "autograd/linear.h"
#include "autograd/precision.h"

namespace elinvar {
namespace {

// Portable products do not take bfloat16.
Var operand_of(const Var& x, Precision precision) { return precision == Precision::portable ? widened(x) : x; }

}  // namespace

Var attention(const Var& q_in, const Var& k_in, const Var& v_in, const AttentionOptions& options) {
  const Precision precision = attention_precision(product_precision(), q_in.dim(-1));
  const Var q = operand_of(q_in, precision), k = operand_of(k_in, precision), v = operand_of(v_in, precision);
  const auto of = [&](const Var& x) { return factor("attention", x.value(), precision); };
  const Tensor qt = of(q), kt = of(k), vt = of(v);
  AttentionResult result = attention(qt, kt, vt, options.causal, options.scale, precision);
  const Tensor o = result.o;
  return record(o, {q, k, v},
                [qt, kt, vt, result = std::move(result), options, precision](const Tensor& d_o) -> std::vector<Tensor> {
                  AttentionGradients g =
                      attention_backward(d_o, qt, kt, vt, result, options.causal, options.scale, precision);
                  return {std::move(g.dq), std::move(g.dk), std::move(g.dv)};
                });
}

Var self_attention(const Var& qkv_in, const AttentionOptions& options) {
  const Precision precision = attention_precision(product_precision(), qkv_in.dim(-1));
  const Var qkv = operand_of(qkv_in, precision);
  const Tensor x = factor("self_attention", qkv.value(), precision);
  AttentionResult result = self_attention(x, options.causal, options.scale, precision);
  const Tensor o = result.o;
  return record(o, {qkv},
                [x, result = std::move(result), options, precision](const Tensor& d_o) -> std::vector<Tensor> {
                  return {self_attention_backward(d_o, x, result, options.causal, options.scale, precision)};
                });
}

}  // namespace elinvar
