#pragma once
// The error of the predictions that plans rely on, and the cost of the trials that improve them. A prediction is the
// speed that the model (speed.h) gave for a job's allocation in a plan, if it knew anything about the job. It is
// compared with the measured speed once the measurement is as long as a trial.
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct PredictionErrors {
  struct Errors {  // relative to the measured speed, absolute values
    size_t count = 0;
    double median = 0, high = 0;  // high: the 90th percentile
  };
  Errors all, sure;  // sure: predictions whose error the model put below kSure (trials.h)
  size_t trials = 0;
  // `paid`: seconds that the trials cost, counted at each job's best speed; `ran`: seconds of all steps.
  double paid = 0, ran = 0;
};

// `jobs`: the measurements of each job, oldest first.
PredictionErrors prediction_errors(std::span<const std::vector<Measurement>> jobs);

std::string text_of(const PredictionErrors& errors);
nlohmann::ordered_json json_of(const PredictionErrors& errors);

}  // namespace elinvar::pool
