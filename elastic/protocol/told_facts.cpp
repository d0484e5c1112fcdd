#include "elastic/protocol/told_facts.h"

#include <algorithm>
#include <string_view>

#include "tensor/base/check.h"

namespace elinvar {

ToldFacts told_facts(int64_t step, const nlohmann::json& facts, const std::string& digests) {
  std::string text = facts.dump();
  if (!digests.empty()) text += '\n' + digests;
  return {step, blob_of(std::move(text))};
}

void add_facts(Message& message, const ToldFacts& facts) {
  message.body["facts"].push_back(facts.step);
  message.blobs.push_back(facts.text);
}

bool tells_facts(const Message& message) {
  return message.kind == "facts" || (message.kind == "alive" && message.body.contains("facts"));
}

std::vector<ToldFacts> facts_in(const Message& message) {
  const auto steps = message.body.value("facts", std::vector<int64_t>());
  check(steps.size() <= message.blobs.size(), "[facts] those of {} steps announced, {} came", steps.size(),
        message.blobs.size());
  std::vector<ToldFacts> facts;
  const size_t first = message.blobs.size() - steps.size();
  for (size_t i = 0; i < steps.size(); ++i) facts.push_back({steps[i], message.blobs[first + i]});
  return facts;
}

std::vector<StepFacts> steps_in(const Message& message) {
  check(message.body.contains("facts"), "[facts] a message without any");
  std::vector<StepFacts> steps;
  for (const ToldFacts& told : facts_in(message)) {
    Blob object = told.text;
    const std::string_view text(reinterpret_cast<const char*>(object.data), object.bytes);
    object.bytes = std::min(object.bytes, text.find('\n'));
    StepFacts& of = steps.emplace_back(StepFacts{told.step, object_from(object)});
    if (object.bytes < text.size()) of.digests = text.substr(object.bytes + 1);
    if (message.body.contains("now") && of.facts.contains("at"))
      of.age = message.body["now"].get<double>() - of.facts["at"].get<double>();
  }
  return steps;
}

}  // namespace elinvar
