#include "tensor/ops/attention.h"

#include "autograd/linear.h"
#include "autograd/precision.h"

namespace elinvar {

Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const Precision precision = attention_precision(product_precision(), q.dim(-1));
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

Var self_attention(const Var& qkv, const AttentionOptions& options) {
  const Precision precision = attention_precision(product_precision(), qkv.dim(-1));
  const Tensor x = factor("self_attention", qkv.value(), precision);
  AttentionResult result = self_attention(x, options.causal, options.scale, precision);
  const Tensor o = result.o;
  return record(o, {qkv},
                [x, result = std::move(result), options, precision](const Tensor& d_o) -> std::vector<Tensor> {
                  return {self_attention_backward(d_o, x, result, options.causal, options.scale, precision)};
                });
}

}  // namespace elinvar
