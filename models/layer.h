#pragma once
// Layers for networks declared in TOML (kind "layers"; models/README.md lists them). A layer knows the shape of its
// input when it is built, so that configurations need not repeat sizes and errors name their line.
#include <functional>
#include <string>
#include <vector>

#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

// A layer with its parameters, ready to run.
using Layer = std::function<Var(const Var&, Context&)>;

// Describes what passes between layers while a network is built; a layer's builder changes it to the layer's output.
struct Flow {
  Shape shape;          // of one sample
  bool tokens = false;  // whether it is indices, which only an embedding can read
  int64_t classes = 0;  // what the network must predict
  int shards = 1;       // virtual shards of layers that can be cut
};

struct LayerKind {
  std::string name;
  std::function<Layer(Settings&, const Scope&, Flow&)> build;
};

std::vector<LayerKind> pointwise_layers();  // activations, dropout, flatten
std::vector<LayerKind> linear_layers();     // linear, embedding, position, attention, experts, lstm
std::vector<LayerKind> image_layers();      // conv2d and poolings
std::vector<LayerKind> norm_layers();       // batch_norm, layer_norm, rms_norm, group_norm
std::vector<LayerKind> branch_layers();     // residual, parallel

// Receives the layers of a list in order, each as soon as it is built. Those of a "repeat" come one by one, and are of
// one kind (Segment::kind); other layers' kind is "".
using Built = std::function<void(const std::string& name, Layer layer, const std::string& kind)>;
// Builds the layers of list `name`, to run one after another; parameters are named <scope><i> or by the layer's `name`.
void build_layers(Settings& settings, const std::string& name, const Scope& scope, Flow& flow, const Built& built);
// Builds the layers of a "repeat": its list as many times as it says, each time with parameters of their own.
void repeat_layers(Settings& settings, const Scope& scope, Flow& flow, const Built& built);
// Returns the layers of list `name` as one.
Layer sequence(Settings& settings, const std::string& name, const Scope& scope, Flow& flow);

// Throws UsageError if setting `name` of a layer that is cut is less than the number of virtual shards.
void require_things(const Settings& settings, const Flow& flow, const char* name, int64_t things);

// Throws UsageError for tokens, and for samples with other than `ndim` dimensions (0: any).
void require_flow(const Settings& settings, const Flow& flow, int ndim, const char* what);

}  // namespace elinvar
