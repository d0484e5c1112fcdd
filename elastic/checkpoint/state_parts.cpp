#include "elastic/checkpoint/state_parts.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tensor/ops/copy.h"

namespace elinvar {
namespace {

constexpr int64_t kPieceBytes = int64_t{8} << 20;
constexpr size_t kMessageBytes = size_t{16} << 20;
constexpr size_t kMostPieces = 1024;

}  // namespace

StateDict part_of(const StateDict& state, int part, int parts) {
  check(0 <= part && part < parts, "[state] part {} of {}", part, parts);
  int64_t total = 0, before = 0;
  for (const auto& [name, tensor] : state) total += tensor.bytes();
  StateDict mine;
  for (const auto& [name, tensor] : state) {
    // The part in which the tensor's middle falls.
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

// Tensor by tensor in the order of names.
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

nlohmann::json to_json(const TensorDigests& digests) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, tensor] : digests) json[name] = tensor.digest.hex() + chunks_of(tensor);
  return json;
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

void send_state(const StateDict& tensors, const StatePart& part, const std::function<void(Message)>& send) {
  Message message;
  size_t bytes = 0;
  const auto begin = [&] {
    message = {.kind = "state",
               .step = part.step,
               .body = {{"part", part.part},
                        {"parts", part.parts},
                        {"attempt", part.attempt},
                        {"last", false},
                        {"digests", nlohmann::json::object()},
                        {"pieces", nlohmann::json::array()}}};
    bytes = 0;
  };
  bool first = true;
  const auto flush = [&] {
    if (std::exchange(first, false))
      for (const ToldFacts& facts : part.facts) add_facts(message, facts);
    send(std::move(message));
    begin();
  };
  begin();
  if (part.pace.batch > 0) message.body["pace"] = to_json(part.pace);
  if (part.pace.batch > 0 && part.end) message.body["end"] = *part.end;
  for (const auto& [name, tensor] : tensors) {
    const Tensor dense = tensor.to(Device{}).to_contiguous();
    const Blob whole = blob_of(dense);
    message.body["digests"][name] = digest(dense).hex();
    for (int64_t at = 0; at < dense.bytes(); at += kPieceBytes) {
      if (bytes >= kMessageBytes || message.blobs.size() >= kMostPieces) flush();
      const size_t count = static_cast<size_t>(std::min(kPieceBytes, dense.bytes() - at));
      message.body["pieces"].push_back({name, at});
      message.blobs.push_back({whole.owner, whole.data + at, count});
      bytes += count;
    }
  }
  message.body["last"] = true;
  flush();
}

void fill(const StateDict& state, const std::vector<Message>& messages) {
  std::map<std::string, std::string> expected;
  std::map<std::string, int64_t> filled;
  StateDict here;  // where pieces are put together: the tensors themselves, or stand-ins for those on another device
  try {
    for (const Message& m : messages) {
      if (m.body.contains("digests")) expected.merge(m.body["digests"].get<std::map<std::string, std::string>>());
      const nlohmann::json& pieces = m.body.at("pieces");
      const size_t came = m.blobs.size() - facts_in(m).size();
      if (pieces.size() != came) fail("[state] {} pieces announced, {} came", pieces.size(), came);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const std::string name = pieces[i].at(0).get<std::string>();
        const int64_t at = pieces[i].at(1).get<int64_t>(), count = static_cast<int64_t>(m.blobs[i].bytes);
        const auto tensor = state.find(name);
        if (tensor == state.end()) fail("[state] this worker has no tensor '{}'", name);
        if (at < 0 || count > tensor->second.bytes() - at) fail("[state] '{}' has other sizes here", name);
        const bool on_cpu = tensor->second.device() == Device{};
        Tensor& target = here.try_emplace(name, on_cpu ? tensor->second : tensor->second.to(Device{})).first->second;
        std::memcpy(static_cast<std::byte*>(target.raw()) + at, m.blobs[i].data, m.blobs[i].bytes);
        filled[name] += count;
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail("[state] malformed message: {}", reason_of(error));
  }
  for (const auto& [name, tensor] : state) {
    if (filled[name] != tensor.bytes()) fail("[state] {} of {} bytes of '{}' came", filled[name], tensor.bytes(), name);
    if (digest(here.at(name)).hex() != expected[name]) fail("[state] the digest of '{}' is wrong", name);
  }
  for (auto& [name, tensor] : here)
    if (Tensor target = state.at(name); target.device() != tensor.device()) copy(tensor, target);
}

}  // namespace elinvar
