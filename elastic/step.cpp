#include "elastic/step.h"

#include <bit>

namespace elinvar {

nlohmann::json to_json(const LeafFacts& f) {
  nlohmann::json json = {{"loss_sum", std::bit_cast<uint64_t>(f.loss_sum)},
                         {"count", f.count},
                         {"correct", f.correct},
                         {"samples", f.samples},
                         {"batch", f.batch.hex()}};
  if (!f.attached.is_null()) json["attached"] = f.attached;
  return json;
}

LeafFacts leaf_facts_from(const nlohmann::json& json) {
  return {.loss_sum = std::bit_cast<double>(json.at("loss_sum").get<uint64_t>()),
          .count = json.at("count").get<int64_t>(),
          .correct = json.at("correct").get<int64_t>(),
          .samples = json.at("samples").get<int64_t>(),
          .batch = Digest::parse(json.at("batch").get<std::string>()),
          .attached = json.value("attached", nlohmann::json())};
}

}  // namespace elinvar
