#pragma once
// Layers that a configuration can name, for networks declared in TOML (kind "layers"; models/README.md shows them).
// A layer knows at construction what shape it gets, so that sizes need not be repeated and errors name their line.
#include <functional>
#include <string>
#include <vector>

#include "nn/network.h"
#include "tensor/base/spec.h"

namespace elinvar {

// A layer with its parameters, ready to run.
using Layer = std::function<Var(const Var&, Context&)>;

// What flows between layers while a network is being built; a layer's builder sets what it gives on.
struct Flow {
  Shape shape;          // of one sample
  bool tokens = false;  // indices, which only an embedding can read
  int64_t classes = 0;  // what the network must predict
};

struct LayerKind {
  std::string name;
  std::function<Layer(Settings&, const Scope&, Flow&)> build;
};

std::vector<LayerKind> pointwise_layers();  // activations, dropout, flatten
std::vector<LayerKind> linear_layers();     // linear, embedding, position, attention
std::vector<LayerKind> image_layers();      // conv2d and poolings
std::vector<LayerKind> norm_layers();       // batch_norm, layer_norm, rms_norm, group_norm
std::vector<LayerKind> branch_layers();     // residual, parallel, repeat

// The layers of list `name` one after another, parameters named <scope><i> or by the layer's own `name`.
Layer sequence(Settings& settings, const std::string& name, const Scope& scope, Flow& flow);

// Refuses a flow of another kind: tokens, or a sample of other than `ndim` dimensions (0: any).
void require_flow(const Settings& settings, const Flow& flow, int ndim, const char* what);

}  // namespace elinvar
