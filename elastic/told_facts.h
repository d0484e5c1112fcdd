#pragma once
// The facts of steps as messages carry them: the body's "facts" names the steps, in order, and the last blobs are their
// texts, one each. So they are written once, whoever passes them on, and many of them are no long body.
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/message.h"

namespace elinvar {

struct ToldFacts {
  int64_t step = 0;
  Blob text;  // a JSON object (elastic/session.h)
};

void add_facts(Message& message, const ToldFacts& facts);
std::vector<ToldFacts> facts_in(const Message& message);  // throws UsageError or nlohmann::json::exception

// What they say.
struct StepFacts {
  int64_t step = 0;
  nlohmann::json facts;
  double age = 0;  // seconds since the step was made, when they were sent
};
std::vector<StepFacts> steps_in(const Message& message);  // throws the same

}  // namespace elinvar
