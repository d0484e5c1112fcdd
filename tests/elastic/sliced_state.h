#pragma once
// A small state that several workers hold in slices, for tests of checkpoints and digests.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "elastic/checkpoint/state_parts.h"
#include "tensor/tensor.h"

namespace elinvar::test::sliced {

inline constexpr int64_t kStep = 3;  // updates in it
inline constexpr int64_t kChunk = kChunkElements;

inline Tensor counting(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from(values, shape);
}

// What is replicated on all workers, and the tensors that they hold in slices: smaller than a chunk, of exactly one,
// of several, and with a rest.
inline StateDict replicated() {
  return {{"model.w", counting({3, 70000}, 1)},
          {"optimizer.x.n", counting({5}, 2)},
          {"step", Tensor::from(std::vector<int64_t>{kStep}, {})}};
}
inline StateDict sharded() {
  return {{"optimizer.w.m", counting({3, 70000}, 3)},
          {"optimizer.w.v", counting({512, 512}, 4)},
          {"optimizer.x.m", counting({1024, 3, 256}, 5)},
          {"optimizer.x.v", counting({2 * kChunk + 77}, 6)}};
}
inline StateDict whole() {
  StateDict state = replicated();
  state.merge(sharded());
  return state;
}

inline StateSlice slice(const std::string& name, const Tensor& tensor, int64_t begin, int64_t end) {
  return {name, tensor.shape(), begin, end, tensor.reshape({-1}).slice(0, begin, end)};
}

// Cuts each sharded tensor at random boundaries of chunks, and gives each slice to one of `parts` at random.
inline std::vector<std::vector<StateSlice>> cut(int parts, std::mt19937& random) {
  std::vector<std::vector<StateSlice>> slices(static_cast<size_t>(parts));
  for (const auto& [name, tensor] : sharded())
    for (int64_t begin = 0, end = 0; begin < tensor.numel(); begin = end) {
      end = std::min(tensor.numel(), begin + static_cast<int64_t>(1 + random() % 3) * kChunk);
      slices[random() % slices.size()].push_back(slice(name, tensor, begin, end));
    }
  return slices;
}

}  // namespace elinvar::test::sliced
