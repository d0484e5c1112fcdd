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
// Weights say nothing of a network's settings. Of LLaMA, rope_base and norm_eps are the rope_theta and rms_norm_eps of
// its config.json; rope_scaling there (LLaMA 3.1 and later) is not in this engine, so that such weights would load and
// say something else.
#include <filesystem>
#include <span>
#include <string>

#include "models/spec.h"
#include "nn/network.h"

namespace elinvar {

// A file .safetensors, a file .safetensors.index.json that names several, or a folder that has model.safetensors or
// such an index. float16, bfloat16 and float64 become float32. Throws Failure.
StateDict read_published(const std::filesystem::path& path);

// Of a network of this kind: its parameters and buffers as others write them.
StateDict published(const ModelSpec& model, const StateDict& network);

// Copies weights into a network of this kind. Those that `except` matches (patterns as in exempt_from_decay) keep their
// initial values, whatever the file has for them; throws UsageError for one that matches none. Throws Failure that
// lists what is missing, left over, or of another shape.
void load_published(const ModelSpec& model, Network& network, const StateDict& weights,
                    std::span<const std::string> except = {});

}  // namespace elinvar
