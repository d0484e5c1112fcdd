#pragma once
// The facts of steps as messages carry them: the body's "facts" names the steps, in order, and the last blobs are their
// texts, one each. So they are written once, whoever passes them on, and many of them are no long body.
//
// A text is a JSON object (elastic/session/session.h) and, on a second line, where there is one, the line that the step
// has in digests.jsonl, which is the longest part by far and nobody on the way has to read.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/message.h"

namespace elinvar {

struct ToldFacts {
  int64_t step = 0;
  Blob text;
};

ToldFacts told_facts(int64_t step, const nlohmann::json& facts, const std::string& digests = "");

void add_facts(Message& message, const ToldFacts& facts);
// Whether these are for a coordinator's files: those that a learner is given go with the state.
bool tells_facts(const Message& message);
std::vector<ToldFacts> facts_in(const Message& message);  // throws UsageError or nlohmann::json::exception

// What they say.
struct StepFacts {
  int64_t step = 0;
  nlohmann::json facts;
  double age = 0;            // seconds since the step was made, when they were sent
  std::string digests = {};  // its line in digests.jsonl; "": none
};
std::vector<StepFacts> steps_in(const Message& message);  // throws the same

}  // namespace elinvar
