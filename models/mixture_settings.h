#pragma once
// Settings of mixtures of experts.
#include "nn/mixture.h"
#include "tensor/base/spec.h"

namespace elinvar {

// Reads `experts`, `experts_per_token`, `capacity_factor`, `balance_weight` and `z_weight`.
inline MixtureOptions mixture_options(Settings& s) {
  MixtureOptions o;
  o.experts = s.integer("experts", {}, 2, kMostExperts);
  o.experts_per_token = s.integer("experts_per_token", 2);
  s.require(o.experts_per_token <= o.experts, "experts_per_token", "= {} is more than experts = {}",
            o.experts_per_token, o.experts);
  o.capacity_factor = s.real("capacity_factor", o.capacity_factor, 1e-3, 1e6);
  o.losses.balance_weight = s.real("balance_weight", o.losses.balance_weight, 0.0, 1e3);
  o.losses.z_weight = s.real("z_weight", 0.0, 0.0, 1e3);
  return o;
}

// The mixtures of a transformer, in place of perceptrons.
struct BlockMixtures {
  MixtureOptions options = {};
  int64_t every = 1;  // each n-th block has one: the last of n

  bool in_block(int64_t i) const { return options.experts > 0 && (i + 1) % every == 0; }
  bool in_every_block() const { return options.experts > 0 && every == 1; }
};

// Reads the same settings and `expert_every`, which a network without experts lacks. Every block has a mixture by
// default, as in Mixtral and OLMoE; GShard and Switch have one in every second.
inline BlockMixtures block_mixtures(Settings& s, int64_t layers) {
  BlockMixtures m;
  for (const char* other : {"experts_per_token", "expert_every", "capacity_factor", "balance_weight", "z_weight"})
    s.require(s.has("experts") || !s.has(other), other, "needs experts to be set");
  if (!s.has("experts")) return m;
  m.options = mixture_options(s);
  m.every = s.integer("expert_every", 1);
  s.require(m.every <= layers, "expert_every", "= {} is more than layers = {}: no block has experts", m.every, layers);
  return m;
}

}  // namespace elinvar
