#pragma once
// The facts of steps as messages carry them: each is written once, by the worker that makes the step, and passed on as
// the same bytes by whoever tells of it. They are a JSON object and, on a second line where there is one, the line that
// the step has in digests.jsonl, which is the longest part by far and nobody on the way has to read.
#include <string>
#include <vector>

#include "comm/fields.h"
#include "elastic/ledger/step_facts.h"
#include "tensor/fields.h"

namespace elinvar {

struct ToldFacts {
  int64_t step = 0;
  Blob text = {};

  ELINVAR_FIELDS(step, text)
};

ToldFacts told_facts(StepFacts facts);

struct TellsFacts {
  double at = 0;  // when it was sent, on the sender's clock
  std::vector<ToldFacts> steps = {};

  ELINVAR_FIELDS(at, steps)
};
// What they say; `age` is how long before `told.at` a step was made. Throws UsageError.
std::vector<StepFacts> steps_in(const TellsFacts& told);

}  // namespace elinvar
