#include "tensor/ops/attention.h"

#include "autograd/linear.h"
#include "autograd/precision.h"
#include "tensor/ops/exact_attention.h"

namespace elinvar {
namespace {

// Portable products do not take bfloat16.
Var operand_of(const Var& x, Precision precision) { return precision == Precision::portable ? widened(x) : x; }

Var exact_attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const Quantized qs = quantize_heads(q.value()), ks = quantize_heads(k.value()), vs = quantize_heads(v.value());
  AttentionResult result = exact_attention(qs, ks, vs, q.shape(), k.shape(), options.causal, options.scale);
  const Tensor o = result.o;
  return record(o, {q, k, v},
                [qs, ks, vs, q_shape = q.shape(), k_shape = k.shape(), result = std::move(result),
                 options](const Tensor& d_o) -> std::vector<Tensor> {
                  AttentionGradients g = exact_attention_backward(d_o, qs, ks, vs, q_shape, k_shape, result,
                                                                  options.causal, options.scale);
                  return {std::move(g.dq), std::move(g.dk), std::move(g.dv)};
                },
                {.compute = [o] { return o; }});
}

Var exact_self_attention(const Var& qkv, const AttentionOptions& options) {
  const Quantized x = quantize_heads(qkv.value());
  AttentionResult result = exact_self_attention(x, qkv.shape(), options.causal, options.scale);
  const Tensor o = result.o;
  return record(
      o, {qkv},
      [x, shape = qkv.shape(), result = std::move(result), options](const Tensor& d_o) -> std::vector<Tensor> {
        return {exact_self_attention_backward(d_o, x, shape, result, options.causal, options.scale)};
      },
      {.compute = [o] { return o; }});
}

}  // namespace

Var attention(const Var& q_in, const Var& k_in, const Var& v_in, const AttentionOptions& options) {
  if (product_precision() == Precision::exact) return exact_attention(q_in, k_in, v_in, options);
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
  if (product_precision() == Precision::exact) return exact_self_attention(qkv_in, options);
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
