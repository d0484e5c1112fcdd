#include "tests/elastic_reference.h"

#include <fmt/format.h>

#include <bit>

#include "comm/reduction_tree.h"
#include "tensor/ops/pointwise.h"
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

Leaf make_leaf(uint64_t state, int64_t step, int vrank) {
  const uint64_t key = mix(state ^ mix(static_cast<uint64_t>(step * 1000 + vrank)));
  if (key % 7 == 0) return {};  // a short batch has no samples for this one
  Leaf leaf;
  leaf.gradients = {Tensor::from(std::vector<float>{number(key), number(key + 1), number(key + 2)}, {3}),
                    Tensor::from(std::vector<float>{number(key + 3), number(key + 4)}, {2})};
  leaf.terms = {Tensor::from(std::vector<float>{number(key + 5)}, {1})};
  leaf.facts = {.loss_sum = number(key + 6),
                .count = 1 + static_cast<int64_t>(key % 5),
                .correct = 1,
                .samples = 2,
                .batch = {key, static_cast<uint64_t>(step)}};
  return leaf;
}

uint64_t updated(uint64_t state, const Reduced& r) {
  uint64_t next = mix(state ^ std::bit_cast<uint64_t>(r.loss));
  for (const std::vector<Tensor>* tensors : {&r.gradients, &r.terms})
    for (const Tensor& t : *tensors)
      for (const float x : t.span<float>()) next = mix(next ^ std::bit_cast<uint32_t>(x));
  return next;
}

std::string facts_text(const Reduced& r) {
  Hasher hasher;
  for (const Tensor& t : r.gradients) hasher.add(digest(t));
  return fmt::format("{} {} {} {}", r.batch.hex(), std::bit_cast<uint64_t>(r.loss), r.count, hasher.digest().hex());
}

Reference::Reference(int vranks, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    TreeFold fold(vranks);
    Reduced r;
    double loss = 0;
    Hasher batches;
    for (int v = 0; v < vranks; ++v) {
      Leaf leaf = make_leaf(state.back(), step, v);
      batches.add(leaf.facts.batch);
      loss += leaf.facts.loss_sum;
      r.count += leaf.facts.count;
      std::vector<Tensor> values = leaf.gradients;
      values.insert(values.end(), leaf.terms.begin(), leaf.terms.end());
      fold.add(v, std::move(values));
    }
    r.batch = batches.digest();
    r.loss = loss / static_cast<double>(r.count);
    std::vector<Tensor> root = fold.take_root();
    for (size_t i = 0; i < root.size(); ++i)
      if (i < 2) r.gradients.push_back(mul(root[i], 1.0 / static_cast<double>(r.count)));
      else r.terms.push_back(root[i]);
    facts.push_back(facts_text(r));
    state.push_back(updated(state.back(), r));
  }
}

}  // namespace elinvar
