#include "tests/elastic/simulator/elastic_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tensor/reduction_tree.h"
#include "tensor/ops/pointwise.h"
#include "tensor/digest_tree.h"
#include "tensor/state.h"

namespace elinvar {

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

namespace {
float number(uint64_t key) { return static_cast<float>(static_cast<int64_t>(mix(key) >> 40) - (1 << 23)) * 0x1p-20f; }
}  // namespace

RankGradient make_gradient(uint64_t state, int64_t step, int vrank, int vranks, const ScalingState& scaling_state) {
  uint64_t key = mix(state ^ mix(static_cast<uint64_t>(step * 1000 + vrank)));
  int64_t samples = 2;
  if (scaling_state.batch > 0) {
    const int64_t batch = std::min(scaling_state.batch, kEpochSamples - scaling_state.samples % kEpochSamples);
    samples = batch * (vrank + 1) / vranks - batch * vrank / vranks;
    key = mix(key ^ mix(static_cast<uint64_t>(scaling_state.samples * 1000 + samples)));
  }
  // In a short batch this virtual rank has no samples.
  if (scaling_state.batch > 0 ? samples == 0 : key % 7 == 0) return {};
  RankGradient gradient;
  gradient.gradients = {Tensor::from(std::vector<float>{number(key), number(key + 1), number(key + 2)}, {3}),
                        Tensor::from(std::vector<float>{number(key + 3), number(key + 4)}, {2})};
  gradient.batch_statistics = {Tensor::from(std::vector<float>{number(key + 5)}, {1})};
  gradient.facts = {.loss_sum = number(key + 6),
                    .count = 1 + static_cast<int64_t>(key % 5),
                    .correct = 1,
                    .samples = samples,
                    .batch = {key, static_cast<uint64_t>(step)}};
  return gradient;
}

uint64_t TinyState::digest() const {
  uint64_t all = rest;
  for (const uint32_t x : parameters) all = mix(all ^ x);
  return all;
}

void TinyState::update_element(size_t i, float gradient, double lr_factor) {
  slots[i] = mix(slots[i] ^ std::bit_cast<uint32_t>(gradient)) ^ std::bit_cast<uint64_t>(lr_factor);
  parameters[i] ^= static_cast<uint32_t>(mix(slots[i]));
}

void TinyState::update_rest(const Reduced& r, double lr_factor) {
  rest = mix(mix(rest ^ std::bit_cast<uint64_t>(r.loss)) ^ std::bit_cast<uint64_t>(lr_factor));
  for (const Tensor& t : r.batch_statistics)
    for (const float x : t.span<float>()) rest = mix(rest ^ std::bit_cast<uint32_t>(x));
}

void TinyState::update(const Reduced& r, double lr_factor) {
  size_t i = 0;
  for (const Tensor& t : r.gradients)
    for (const float x : t.span<float>()) update_element(i++, x, lr_factor);
  update_rest(r, lr_factor);
}

// The digest of the gradients is that of the digests of their elements, so that it can be made from parts.
std::string facts_text(const Reduced& r) {
  Hasher hasher;
  for (const Tensor& t : r.gradients)
    for (int64_t i = 0; i < t.numel(); ++i) hasher.add(digest_tree({{t.slice(0, i, i + 1)}})[0].chunks[0]);
  if (r.shards)
    for (const Digest& element : r.shards->chunks) hasher.add(element);
  return fmt::format("{} {} {} {}", r.batch.hex(), std::bit_cast<uint64_t>(r.loss), r.count, hasher.digest().hex());
}

Reference::Reference(int ranks, int64_t steps) : vranks(ranks), state{TinyState().digest()} {
  for (int64_t step = 0; step < steps; ++step) follow({});
}

Reference::Reference(int ranks, const ScalingOptions& options)
    : vranks(ranks), scaling(options), state{TinyState().digest()} {}

Reference::Reference(const Reference& before, int64_t steps) : Reference(before) {
  state.resize(static_cast<size_t>(steps + 1));
  states.resize(static_cast<size_t>(steps + 1));
  sums.resize(static_cast<size_t>(steps));
  facts.resize(static_cast<size_t>(steps));
  scaling_states.resize(static_cast<size_t>(steps));
}

ScalingState Reference::made(int64_t step) const {
  if (step == 0) return {.batch = scaling.batch};
  ScalingState scaling_state = scaling_states[static_cast<size_t>(step - 1)];
  scaling_state.samples += std::min(scaling_state.batch, kEpochSamples - scaling_state.samples % kEpochSamples);
  return scaling_state;
}

void Reference::follow(const ScalingState& scaling_state) {
  const int64_t step = steps();
  TreeReducer reducer(vranks);
  Reduced r;
  double loss = 0;
  Hasher batches;
  for (int v = 0; v < vranks; ++v) {
    RankGradient gradient = make_gradient(state.back(), step, v, vranks, scaling_state);
    batches.add(gradient.facts.batch);
    loss += gradient.facts.loss_sum;
    r.count += gradient.facts.count;
    std::vector<Tensor> values = gradient.gradients;
    values.insert(values.end(), gradient.batch_statistics.begin(), gradient.batch_statistics.end());
    reducer.add(v, std::move(values));
  }
  r.batch = batches.digest();
  r.loss = loss / static_cast<double>(r.count);
  std::vector<Tensor> root = reducer.take_root();
  for (size_t i = 0; i < root.size(); ++i)
    if (i < 2) r.gradients.push_back(mul(root[i], 1.0 / static_cast<double>(r.count)));
    else r.batch_statistics.push_back(root[i]);
  facts.push_back(facts_text(r));
  scaling_states.push_back(scaling_state);
  uint32_t sum = 0;
  for (const Tensor& t : r.gradients)
    for (const float x : t.span<float>()) sum ^= std::bit_cast<uint32_t>(x);
  sums.push_back(sum);
  TinyState next = states.back();
  next.update(r, scaling_state.batch > 0 ? lr_factor(scaling_state, step, scaling) : 1);
  states.push_back(next);
  state.push_back(next.digest());
}

}  // namespace elinvar
