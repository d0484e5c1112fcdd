#pragma once
// The error of the predictions that a pool acts on, and the cost of the trials that improve them. A prediction is the
// speed that the model (speed.h) gave a job for its allocation in a plan, if it knew anything of the job; it is
// compared with the speed that was measured then, once that was measured for as long as a trial.
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct PredictionErrors {
  struct Errors {  // relative to the measured speed, without signs
    size_t count = 0;
    double median = 0, high = 0;  // high: the 90th percentile
  };
  Errors all, sure;  // sure: those that the model itself took to be better than kSure (advisor.h)
  size_t trials = 0;
  double paid = 0, ran = 0;  // seconds of jobs at their best speed that trials took, of so many seconds of steps
};

// `jobs`: the measurements of each job, oldest first.
PredictionErrors prediction_errors(std::span<const std::vector<Measurement>> jobs);

std::string text_of(const PredictionErrors& errors);
nlohmann::ordered_json json_of(const PredictionErrors& errors);

}  // namespace elinvar::pool
