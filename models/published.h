#pragma once
// Weights as others publish them: torchvision's names and layouts for ResNet and VGG, Hugging Face's for GPT-2 and
// LLaMA, in safetensors files, one or several with an index. Names are this engine's, too; what differs is
//
//   filters            (O, H, W, I) here, (O, I, H, W) there
//   GPT-2's products   weights (out, in) here, (in, out) there
//   VGG's classifier   reads an image here row by row, there channel by channel
//
// and that others add prefixes, counters, masks and a head that repeats the embedding, which are passed over.
//
// Weights say little of a network's settings. The config.json that Hugging Face puts beside them says more:
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

// A file .safetensors, a file .safetensors.index.json that names several, or a folder that has model.safetensors or
// such an index. float16, bfloat16 and float64 become float32. Throws Failure.
StateDict read_published(const std::filesystem::path& path);

// UsageError, with the settings that it should have, where the config.json beside such weights tells of another network
// than `model`, whose defaults are filled in; Failure where what it tells of is not in this engine. Without that file,
// nothing.
void check_published_settings(const Spec& model, const std::filesystem::path& weights);

// Of a network of this kind: its parameters and buffers as others write them.
StateDict published(const Spec& model, const StateDict& network);

// Copies weights into a network of this kind. Those that `except` matches (patterns as in exempt_from_decay) keep their
// initial values, whatever the file has for them; throws UsageError for one that matches none. Throws Failure that
// lists what is missing, left over, or of another shape.
void load_published(const Spec& model, Network& network, const StateDict& weights,
                    std::span<const std::string> except = {});

}  // namespace elinvar
