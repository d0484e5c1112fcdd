#include "tensor/ops/attention.h"

#include "autograd/linear.h"

namespace elinvar {

Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options) {
  const Tensor qt = q.value(), kt = k.value(), vt = v.value();
  AttentionResult result = attention(qt, kt, vt, options.causal, options.scale);
  const Tensor o = result.o;
  return record(o, {q, k, v},
                [qt, kt, vt, result = std::move(result), options](const Tensor& d_o) -> std::vector<Tensor> {
                  AttentionGradients g = attention_backward(d_o, qt, kt, vt, result, options.causal, options.scale);
                  return {std::move(g.dq), std::move(g.dk), std::move(g.dv)};
                });
}

Var self_attention(const Var& qkv, const AttentionOptions& options) {
  const Tensor x = qkv.value();
  AttentionResult result = self_attention(x, options.causal, options.scale);
  const Tensor o = result.o;
  return record(o, {qkv}, [x, result = std::move(result), options](const Tensor& d_o) -> std::vector<Tensor> {
    return {self_attention_backward(d_o, x, result, options.causal, options.scale)};
  });
}

}  // namespace elinvar
