#pragma once
// GPT-2 (Radford et al., "Language models are unsupervised multitask learners"): learnt positions, layer norm before
// attention and before the perceptron, tanh-form GELU, and a head that shares the embedding's weights.
// Parameters are named as in Hugging Face's GPT2Model: wte, wpe, h.<i>.ln_1, h.<i>.attn.c_attn, h.<i>.attn.c_proj,
// h.<i>.ln_2, h.<i>.mlp.c_fc, h.<i>.mlp.c_proj, ln_f; weights are (out, in), where theirs are (in, out).
#include <memory>

#include "models/input_info.h"
#include "nn/network.h"

namespace elinvar {

struct GptOptions {
  int64_t layers = 12, heads = 12, channels = 768;
  int64_t context = 0;    // the longest sequence; 0: that of the data
  double dropout = 0.0;   // after the embeddings and at the end of each residual branch
  bool tied_head = true;  // otherwise a parameter lm_head.weight
  bool bias = true;       // of linear layers and layer norms
};

// Weights start from N(0, 0.02^2), those that end a residual branch from that divided by sqrt(2 * layers); biases
// are zero.
std::unique_ptr<Network> gpt(const GptOptions& options, const InputInfo& input, uint64_t seed);

}  // namespace elinvar
