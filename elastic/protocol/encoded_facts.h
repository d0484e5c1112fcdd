#pragma once
// The facts of steps as messages carry them. The worker that makes a step encodes its facts once, and every other
// process passes on the same bytes. They are a JSON object and, on an optional second line, the step's line of
// digests.jsonl, which is by far the longest part and which no process on the way parses.
#include <string>
#include <vector>

#include "comm/blob.h"
#include "elastic/ledger/step_facts.h"
#include "tensor/fields.h"

namespace elinvar {

struct EncodedFacts {
  int64_t step = 0;
  Blob text = {};

  ELINVAR_FIELDS(step, text)
};

EncodedFacts encode_facts(StepFacts facts);

struct FactsBatch {
  double at = 0;  // time of sending on the sender's clock
  std::vector<EncodedFacts> steps = {};

  ELINVAR_FIELDS(at, steps)
};
// Parses the facts; `age` is the time between a step and `told.at`. Throws UsageError.
std::vector<StepFacts> decode_facts(const FactsBatch& told);

}  // namespace elinvar
