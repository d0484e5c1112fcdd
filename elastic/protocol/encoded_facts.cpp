#include "elastic/protocol/encoded_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "comm/fields.h"

namespace elinvar {

EncodedFacts encode_facts(StepFacts facts) {
  const std::string digests = std::exchange(facts.digests, {});
  std::string text = write_fields(facts).dump();
  if (!digests.empty()) text += '\n' + digests;
  return {facts.step, blob_of(std::move(text))};
}

std::vector<StepFacts> decode_facts(const FactsBatch& told) {
  std::vector<StepFacts> steps;
  for (const auto& [step, blob] : told.steps) {
    Blob object = blob;
    const std::string_view text(reinterpret_cast<const char*>(object.data), object.bytes);
    object.bytes = std::min(object.bytes, text.find('\n'));
    StepFacts& facts = steps.emplace_back(read_fields<StepFacts>(object_from(object)));
    facts.step = step;
    facts.age = told.at - facts.at;
    if (object.bytes < text.size()) facts.digests = text.substr(object.bytes + 1);
  }
  return steps;
}

}  // namespace elinvar
