#pragma once
// The config.json next to published weights. Its model_type and class correspond to a kind of [model]:
//
//   model_type   class                          [model] kind
//   gpt2         GPT2LMHeadModel                gpt, gpt2, gpt2-medium, ..
//   llama        LlamaForCausalLM               llama without experts
//   qwen2        Qwen2ForCausalLM               llama with qkv_bias = true
//   mixtral      MixtralForCausalLM             llama with experts in each block
//   mistral      MistralForCausalLM             llama; import only, without a sliding window
//   bert         BertForMaskedLM                bert, bert-base, .. with head = "tokens"
//   bert         BertForSequenceClassification  the same with head = "pooled"
//   electra      ElectraForPreTraining          electra, electra-small, ..: its discriminator
//   electra      ElectraForMaskedLM             the same: its generator, in the folder "generator"
//   t5           T5ForConditionalGeneration     t5, t5-small, ..
//   resnet       ResNetForImageClassification   resnet, resnet18, ..
//   absent       torchvision's vgg11_bn, ..     vgg11, .. with head = "imagenet"
//   absent       torchvision's vgg11, ..        the same with batch_norm = false
//   absent       torchvision's mobilenet_v2,    the same; settings are the kind's defaults for images of 224 x 224
//                wide_resnet50_2, vit_b_16, ..
//
// Its keys correspond to settings:
//
//   gpt2     n_layer                            layers
//            n_head                             heads
//            n_embd                             channels
//   llama    num_hidden_layers                  layers
//            num_attention_heads                heads
//            num_key_value_heads                kv_heads
//            hidden_size                        channels
//            intermediate_size                  hidden
//            rms_norm_eps                       norm_eps
//            rope_theta                         rope_base
//   mixtral  the same, and
//            num_local_experts                  experts
//            num_experts_per_tok                experts_per_token
//            router_aux_loss_coef               balance_weight * layers / experts_per_token; not compared
//   llama, in rope_scaling or rope_parameters of rope_type "llama3":
//            factor                             rope_factor
//            low_freq_factor                    rope_low_freq_factor
//            high_freq_factor                   rope_high_freq_factor
//            original_max_position_embeddings   rope_original_context
//   bert     num_hidden_layers                  layers
//            num_attention_heads                heads
//            hidden_size                        channels
//            intermediate_size                  hidden
//            max_position_embeddings            context
//   electra  the same, and
//            embedding_size                     embedding
//   electra, in the folder "generator":
//            num_hidden_layers, ..              generator_layers, generator_heads, generator_channels, generator_hidden
//   t5       num_layers                         layers
//            num_decoder_layers                 decoder_layers
//            num_heads                          heads
//            d_model                            channels
//            d_kv                               head_channels
//            d_ff                               hidden
//            relative_attention_num_buckets     buckets
//            relative_attention_max_distance    max_distance
//            feed_forward_proj                  gated: "gated-gelu", otherwise "relu"
//   resnet   depths                             blocks
//            hidden_sizes                       widths; with bottlenecks, hidden_sizes are four times widths
//            layer_type                         bottleneck
//   all      tie_word_embeddings                tied_head; bert and electra are always tied
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/input_info.h"
#include "tensor/base/spec.h"
#include "tensor/state.h"

namespace elinvar {

// The contents of a config.json other than the settings of the network.
struct PublishedFacts {
  int64_t context = 0;                        // tokens in a sequence
  std::optional<int32_t> end_of_text = {};    // the token that separates documents, or that ends a text of a pair
  std::optional<int32_t> start = {};          // the token that begins a text to be written
  std::vector<std::string> class_names = {};  // of images; empty: LABEL_0, LABEL_1, ..
};

// Returns the text of config.json for a network, in one of its folders (published_folders). `model` describes it with
// all defaults filled in. Throws UsageError if neither Hugging Face's transformers nor torchvision has a class for it.
std::string published_config(const Spec& model, const StateDict& network, const PublishedFacts& facts,
                             const std::string& folder = "");

// Compares a network with each config.json next to these weights that exists. Throws UsageError that lists the
// settings to change if it describes another network, and Failure if this engine does not support the network.
void check_published_settings(const Spec& model, const StateDict& network, const std::filesystem::path& weights);

// Throws UsageError if the config.json next to these weights numbers the classes of the data in another order.
void check_order_of_classes(const std::vector<std::string>& names, const std::filesystem::path& weights);

}  // namespace elinvar
