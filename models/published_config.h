#pragma once
// The config.json next to published weights. It names the class that the weights belong to and its sizes:
//
//   model_type, class                          [model]
//   gpt2, GPT2LMHeadModel                      gpt and gpt2*: n_layer, n_head, n_embd are layers, heads, channels
//   llama, LlamaForCausalLM                    llama: num_hidden_layers, num_attention_heads, num_key_value_heads,
//                                              hidden_size, intermediate_size, rms_norm_eps, rope_theta are layers,
//                                              heads, kv_heads, channels, hidden, norm_eps, rope_base; rope_scaling (or
//                                              rope_parameters) of rope_type "llama3": factor, low_freq_factor,
//                                              high_freq_factor, original_max_position_embeddings are rope_factor,
//                                              rope_low_freq_factor, rope_high_freq_factor, rope_original_context
//   qwen2, Qwen2ForCausalLM                    llama with qkv_bias
//   mistral, MistralForCausalLM                llama; read only, and only without a sliding window
//   resnet, ResNetForImageClassification       resnet*: depths, hidden_sizes, layer_type are blocks, widths (times four
//                                              for a bottleneck), bottleneck
//   none: torchvision's vgg11_bn, vgg11, ..    vgg* with head "imagenet"; without "_bn": batch_norm = false
//
// tie_word_embeddings is tied_head. Classes have biases that this engine can omit; these are written as zeros.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/input_info.h"
#include "tensor/base/spec.h"
#include "tensor/state.h"

namespace elinvar {

// What a config.json tells besides the network.
struct PublishedFacts {
  int64_t context = 0;                        // tokens in a sequence
  std::optional<int32_t> end_of_text = {};    // the token that separates documents
  std::vector<std::string> class_names = {};  // of images; empty: LABEL_0, LABEL_1, ..
};

// Returns the text of config.json for a network, `model` being its description with all defaults filled in. Throws
// UsageError if neither Hugging Face's transformers nor torchvision has a class for it.
std::string published_config(const Spec& model, const StateDict& network, const PublishedFacts& facts);

// Compares a network, as above, with the config.json next to such weights, if there is one. Throws UsageError with the
// right settings if it describes another network, and Failure if this engine does not support it.
void check_published_settings(const Spec& model, const StateDict& network, const std::filesystem::path& weights);

}  // namespace elinvar
