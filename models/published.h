#pragma once
// Reads and writes published weights: in torchvision's names and layouts for ResNet and VGG, Hugging Face's for GPT-2,
// LLaMA, Mixtral, BERT, ELECTRA and T5, in one safetensors file or several with an index. This engine uses the same
// names. The differences are
//
//   filters            (O, H, W, I) here, (O, I, H, W) there
//   GPT-2's products   weights (out, in) here, (in, out) there
//   Mixtral's experts  one tensor for all here, one for each there (models/published_experts.h)
//   VGG's classifier   reads an image here row by row, there channel by channel
//
// Prefixes, counters, masks, copies of the embedding, further heads of a BERT, and zero biases of layers that have no
// bias here are ignored; norms of old BERTs have gamma and beta. Hugging Face's ResNet has different names:
//
//   layer1.0.conv2.weight                  resnet.encoder.stages.0.layers.0.layer.1.convolution.weight
//   layer2.0.downsample.1.running_mean     resnet.encoder.stages.1.layers.0.shortcut.normalization.running_mean
//   fc.bias                                classifier.1.bias
//
// ELECTRA's two networks are two classes there, each in its folder: ElectraForPreTraining, whose names begin with
// "discriminator." here, and in a folder "generator" within that one ElectraForMaskedLM, with a copy of the embeddings.
//
// The settings of a network are in the config.json next to the weights (models/published_config.h).
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

// Reads a .safetensors file, a .safetensors.index.json that names several, or a folder with model.safetensors or such
// an index. Converts float16, bfloat16 and float64 to float32. Throws Failure.
StateDict read_published(const std::filesystem::path& path);

// Returns the folders of a network's classes, relative to that of the whole: "" alone, or for ELECTRA "" and
// "generator".
std::vector<std::string> published_folders(const Spec& model);

// Reads the weights of a network of this kind, under the names that load_published() expects: those of a file or of an
// index, or those of each of its folders that exists. Throws Failure.
StateDict read_published(const Spec& model, const std::filesystem::path& path);

// Returns the parameters and buffers of a network of this kind (Parameters::whole_state) in the published layout, under
// this engine's names. Adds zero biases to a VGG, because torchvision's has biases.
StateDict published(const Spec& model, const StateDict& network);

// Returns the same under the names of the class that published_config() chooses for a folder, with all tensors that
// its files have: a tied head is included, and missing biases and the counters of batch norms are zero.
StateDict published_for_class(const Spec& model, const StateDict& network, const std::string& folder = "");

// Copies weights into a network of this kind. Parameters that `except` matches (patterns as in exempt_from_decay) keep
// their initial values; a pattern that matches none is a UsageError. Throws Failure with a list of weights that are
// missing, unexpected, or of another shape.
void load_published(const Spec& model, Network& network, const StateDict& weights,
                    std::span<const std::string> except = {});

}  // namespace elinvar
