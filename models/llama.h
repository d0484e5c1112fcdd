#pragma once
// A LLaMA-style transformer (Touvron et al., "LLaMA: open and efficient foundation language models"): RMS norm before
// attention and perceptron, rotary positions (also as slow as LLaMA 3.1's), SwiGLU, grouped-query attention, no biases.
// Parameters are named as in Hugging Face's LlamaForCausalLM: model.embed_tokens, model.layers.<i>.{input_layernorm,
// self_attn.{q,k,v,o}_proj, post_attention_layernorm, mlp.{gate,up,down}_proj}, model.norm, lm_head.
#include <memory>

#include "models/input_info.h"
#include "nn/network.h"
#include "tensor/ops/rotary.h"

namespace elinvar {

struct LlamaOptions {
  int64_t layers = 4, heads = 4, channels = 128;
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0: as many as heads
  int64_t hidden = 0;    // of the perceptron; 0: 8/3 of the channels, rounded up to a multiple of 64
  RotaryFrequencies rope = {};
  double norm_eps = 1e-5;
  double dropout = 0.0;  // at the end of each residual branch
  bool tied_head = false;
};

// Weights start from N(0, 0.02^2), those that end a residual branch from that divided by sqrt(2 * layers).
std::unique_ptr<Network> llama(const LlamaOptions& options, const InputInfo& input, uint64_t seed);

}  // namespace elinvar
