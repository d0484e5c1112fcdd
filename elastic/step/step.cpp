#include "elastic/step/step.h"

#include <bit>

#include "tensor/digest_tree.h"

namespace elinvar {

TensorsDigest digest_in_order(std::span<const Tensor> tensors, std::span<const Tensor> then) {
  std::vector<Tensor> all(tensors.begin(), tensors.end());
  all.insert(all.end(), then.begin(), then.end());
  TensorsDigest result;
  Hasher hasher;
  for (const TensorDigest& tensor : digest_tree(all)) {
    hasher.add(tensor.digest);
    result.tensors += short_hex(tensor.digest);
  }
  result.digest = hasher.digest();
  return result;
}

nlohmann::json to_json(const LeafFacts& f) {
  nlohmann::json json = {{"loss_sum", std::bit_cast<uint64_t>(f.loss_sum)},
                         {"count", f.count},
                         {"correct", f.correct},
                         {"samples", f.samples},
                         {"batch", f.batch.hex()}};
  if (!f.batch_tensors.empty()) json["batch_tensors"] = f.batch_tensors;
  if (f.gradient) json["gradient"] = f.gradient->hex();
  if (!f.tensors.empty()) json["tensors"] = f.tensors;
  if (!f.attached.is_null()) json["attached"] = f.attached;
  return json;
}

LeafFacts leaf_facts_from(const nlohmann::json& json) {
  std::optional<Digest> gradient;
  if (json.contains("gradient")) gradient = Digest::parse(json["gradient"].get<std::string>());
  return {.loss_sum = std::bit_cast<double>(json.at("loss_sum").get<uint64_t>()),
          .count = json.at("count").get<int64_t>(),
          .correct = json.at("correct").get<int64_t>(),
          .samples = json.at("samples").get<int64_t>(),
          .batch = Digest::parse(json.at("batch").get<std::string>()),
          .batch_tensors = json.value("batch_tensors", ""),
          .gradient = gradient,
          .tensors = json.value("tensors", ""),
          .attached = json.value("attached", nlohmann::json())};
}

}  // namespace elinvar
