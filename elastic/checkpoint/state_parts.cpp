#include "elastic/checkpoint/state_parts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tensor/ops/copy.h"

namespace elinvar {
namespace {

constexpr int64_t kHashedPieceBytes = int64_t{8} << 20;
constexpr size_t kMessageBytes = size_t{16} << 20;
constexpr size_t kMostPieces = 1024;

}  // namespace

StateDict part_of(const StateDict& state, int part, int parts) {
  check(0 <= part && part < parts, "[state] part {} of {}", part, parts);
  int64_t total = 0, before = 0;
  for (const auto& [name, tensor] : state) total += tensor.bytes();
  StateDict mine;
  for (const auto& [name, tensor] : state) {
    // The part that contains the tensor's middle.
    const int64_t middle = before + tensor.bytes() / 2;
    before += tensor.bytes();
    if (std::min<int64_t>(parts - 1, middle * parts / std::max<int64_t>(1, total)) == part) mine.emplace(name, tensor);
  }
  return mine;
}

TensorDigests digests_of(const StateDict& part) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : part) tensors.push_back(tensor);
  std::vector<TensorDigest> tree = digest_tree(tensors);
  TensorDigests digests;
  size_t i = 0;
  for (const auto& [name, tensor] : part) digests.emplace(name, std::move(tree[i++]));
  return digests;
}

namespace {

std::string chunks_of(const TensorDigest& tensor) {
  std::string text;
  if (tensor.chunks.size() > 1)
    for (const Digest& chunk : tensor.chunks) text += short_hex(chunk);
  return text;
}

// Digests tensors one by one in name order.
class StateSummer {
 public:
  void add(const std::string& name, const Digest& tensor, const std::string& chunks) {
    hasher_.add(std::string_view(name));
    hasher_.add(tensor);
    parts_.tensors += short_hex(tensor);
    parts_.chunks += chunks;
  }
  StateSum sum() const { return {hasher_.digest(), parts_}; }

 private:
  Hasher hasher_;
  StateDigests parts_;
};

}  // namespace

std::map<std::string, std::string> to_text(const TensorDigests& digests) {
  std::map<std::string, std::string> text;
  for (const auto& [name, tensor] : digests) text[name] = tensor.digest.hex() + chunks_of(tensor);
  return text;
}

StateSum state_sum(const std::map<std::string, std::string>& digests) {
  constexpr size_t kWhole = 32;
  StateSummer summer;
  for (const auto& [name, text] : digests)
    summer.add(name, Digest::parse(std::string_view(text).substr(0, kWhole)), text.substr(kWhole));
  return summer.sum();
}

StateSum state_sum(const TensorDigests& digests) {
  StateSummer summer;
  for (const auto& [name, tensor] : digests) summer.add(name, tensor.digest, chunks_of(tensor));
  return summer.sum();
}

TensorDigests joined(std::span<const SliceDigests> slices) {
  std::map<std::string, std::vector<std::pair<SliceRange, const SliceDigests*>>> tensors;
  for (const SliceDigests& slice : slices) tensors[slice.tensor].emplace_back(range_of(slice), &slice);
  TensorDigests digests;
  for (auto& [name, of_tensor] : tensors) {
    std::ranges::stable_sort(of_tensor, {}, [](const auto& slice) { return slice.first.begin; });
    std::vector<SliceRange> ranges;
    std::vector<Digest> chunks;
    for (const auto& [range, slice] : of_tensor) {
      ranges.push_back(range);
      chunks.insert(chunks.end(), slice->chunks.begin(), slice->chunks.end());
    }
    check_complete(ranges);
    digests[name] = {digest_of_chunks(DType::f32, ranges[0].whole, chunks), chunks};
  }
  return digests;
}

namespace {

// Adds the tensors of `other` to those of `digests`, which must have other names.
template <class Digests>
StateSum sum_of_both(Digests digests, const Digests& other) {
  for (const auto& [name, digest] : other)
    if (!digests.emplace(name, digest).second) fail("[state] '{}' is there whole and in slices", name);
  return state_sum(digests);
}

}  // namespace

StateSum state_sum(const std::map<std::string, std::string>& whole, std::span<const SliceDigests> slices) {
  return sum_of_both(whole, to_text(joined(slices)));
}

StateSum state_sum(const TensorDigests& whole, std::span<const SliceDigests> slices) {
  return sum_of_both(whole, joined(slices));
}

void send_state(const StateDict& tensors, const StatePart& part,
                const std::function<void(messages::StatePieces)>& send) {
  messages::StatePieces next;
  size_t bytes = 0;
  const auto begin = [&] {
    next = {.part = part.part, .parts = part.parts, .attempt = part.attempt};
    bytes = 0;
  };
  begin();
  next.facts = part.facts;
  if (part.scaling_state.batch > 0) {
    next.scaling_state = part.scaling_state;
    next.end = part.end;
  }
  for (const auto& [name, tensor] : tensors) {
    const Tensor dense = tensor.to(Device{}).to_contiguous();
    const Blob whole = blob_of(dense);
    next.digests[name] = digest(dense);
    for (int64_t at = 0; at < dense.bytes(); at += kHashedPieceBytes) {
      if (bytes >= kMessageBytes || next.bytes.size() >= kMostPieces) {
        send(std::move(next));
        begin();
      }
      const size_t count = static_cast<size_t>(std::min(kHashedPieceBytes, dense.bytes() - at));
      next.pieces.push_back({name, at});
      next.bytes.push_back({whole.owner, whole.data + at, count});
      bytes += count;
    }
  }
  next.last = true;
  send(std::move(next));
}

void fill(const StateDict& state, const std::vector<messages::StatePieces>& messages) {
  std::map<std::string, Digest> expected;
  std::map<std::string, int64_t> filled;
  StateDict here;  // the destinations of the pieces: the tensors themselves, or stand-ins for those on another device
  for (const messages::StatePieces& m : messages) {
    expected.insert(m.digests.begin(), m.digests.end());
    if (m.pieces.size() != m.bytes.size())
      fail("[state] {} pieces announced, {} came", m.pieces.size(), m.bytes.size());
    for (size_t i = 0; i < m.pieces.size(); ++i) {
      const auto& [name, at] = m.pieces[i];
      const int64_t count = static_cast<int64_t>(m.bytes[i].bytes);
      const auto tensor = state.find(name);
      if (tensor == state.end()) fail("[state] this worker has no tensor '{}'", name);
      if (at < 0 || count > tensor->second.bytes() - at) fail("[state] '{}' has other sizes here", name);
      const bool on_cpu = tensor->second.device() == Device{};
      Tensor& target = here.try_emplace(name, on_cpu ? tensor->second : tensor->second.to(Device{})).first->second;
      std::memcpy(static_cast<std::byte*>(target.raw()) + at, m.bytes[i].data, m.bytes[i].bytes);
      filled[name] += count;
    }
  }
  for (const auto& [name, tensor] : state) {
    if (filled[name] != tensor.bytes()) fail("[state] {} of {} bytes of '{}' came", filled[name], tensor.bytes(), name);
    if (!expected.contains(name) || digest(here.contains(name) ? here.at(name) : tensor) != expected.at(name))
      fail("[state] the digest of '{}' is wrong", name);
  }
  for (auto& [name, tensor] : here)
    if (Tensor target = state.at(name); target.device() != tensor.device()) copy(tensor, target);
}

}  // namespace elinvar
