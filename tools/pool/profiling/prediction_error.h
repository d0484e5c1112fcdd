#pragma once
// How good the predictions were on which a pool acts, and what the advisor paid for them: figures that the pool reports
// of itself. A prediction is the speed that the model (speed.h) gave a job for what a plan gave it, if it knew anything
// of the job; it is judged by the speed that was then measured, once that was measured for as long as a trial.
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct PredictionErrors {
  struct Errors {  // parts of what was measured, without their signs
    size_t count = 0;
    double median = 0, high = 0;  // high: the 90th percentile
  };
  Errors all, sure;  // sure: those that the model itself took to be better than kSure (advisor.h)
  size_t trials = 0;
  double paid = 0, ran = 0;  // seconds of jobs at their best speed that trials took, of so many seconds of steps
};

// Of the measurements of each job, oldest first.
PredictionErrors prediction_errors(std::span<const std::vector<Measurement>> jobs);

std::string text_of(const PredictionErrors& errors);
nlohmann::ordered_json json_of(const PredictionErrors& errors);

}  // namespace elinvar::pool
