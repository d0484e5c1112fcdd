#pragma once
// Reads and writes published weights: in torchvision's names and layouts for ResNet and VGG, Hugging Face's for GPT-2
// and LLaMA, in one safetensors file or several with an index. This engine uses the same names. The differences are
//
//   filters            (O, H, W, I) here, (O, I, H, W) there
//   GPT-2's products   weights (out, in) here, (in, out) there
//   VGG's classifier   reads an image here row by row, there channel by channel
//
// and prefixes, counters, masks and a head that repeats the embedding, which are ignored.
//
// Weights tell little about a network's settings. The config.json that Hugging Face puts next to them tells more:
//
//   num_attention_heads, num_key_value_heads    model.heads, kv_heads (of GPT-2: n_head)
//   rms_norm_eps                                norm_eps
//   rope_theta                                  rope_base
//   rope_scaling (or rope_parameters)           of rope_type "llama3": factor, low_freq_factor, high_freq_factor and
//                                               original_max_position_embeddings are rope_factor, rope_low_freq_factor,
//                                               rope_high_freq_factor and rope_original_context
#include <filesystem>
#include <span>
#include <string>

#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

// Reads a .safetensors file, a .safetensors.index.json that names several, or a folder with model.safetensors or such
// an index. Converts float16, bfloat16 and float64 to float32. Throws Failure.
StateDict read_published(const std::filesystem::path& path);

// Compares `model`, with its defaults filled in, with the config.json next to such weights, if there is one. Throws
// UsageError with the right settings if it describes another network, and Failure if this engine does not support it.
void check_published_settings(const Spec& model, const std::filesystem::path& weights);

// Returns the parameters and buffers of a network of this kind in the published layout.
StateDict published(const Spec& model, const StateDict& network);

// Copies weights into a network of this kind. Parameters that `except` matches (patterns as in exempt_from_decay) keep
// their initial values; a pattern that matches none is a UsageError. Throws Failure with a list of weights that are
// missing, unexpected, or of another shape.
void load_published(const Spec& model, Network& network, const StateDict& weights,
                    std::span<const std::string> except = {});

}  // namespace elinvar
