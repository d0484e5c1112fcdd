#include "tools/pool/profiling/prediction_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/pool/profiling/trials.h"

namespace elinvar::pool {
namespace {

PredictionErrors::Errors errors_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double part) {
    return errors[static_cast<size_t>(std::lround(part * static_cast<double>(errors.size() - 1)))];
  };
  return {errors.size(), at(0.5), at(0.9)};
}

nlohmann::ordered_json json_of(const PredictionErrors::Errors& e) {
  return {{"count", e.count}, {"median", e.median}, {"high", e.high}};
}

std::string text_of(const PredictionErrors::Errors& e) {
  return fmt::format("{:.1f} % (median), {:.1f} % (90 %) off in {}", 100 * e.median, 100 * e.high, e.count);
}

}  // namespace

PredictionErrors prediction_errors(std::span<const std::vector<Measurement>> jobs) {
  PredictionErrors errors;
  std::vector<double> all, sure;
  for (const std::vector<Measurement>& measured : jobs) {
    double best = 0;
    for (const Measurement& m : measured) {
      best = std::max(best, m.rate);
      errors.ran += m.seconds;
      errors.trials += m.trial;
      if (m.predicted <= 0 || m.rate <= 0 || m.seconds < kTrialSeconds) continue;
      const double error = std::abs(m.predicted / m.rate - 1);
      all.push_back(error);
      if (m.predicted_error < kSure) sure.push_back(error);
    }
    if (best > 0) errors.paid += trials_cost(measured, RescaleCosts{}) / best;
  }
  errors.all = errors_of(std::move(all));
  errors.sure = errors_of(std::move(sure));
  return errors;
}

std::string text_of(const PredictionErrors& e) {
  if (e.all.count == 0) return "no predicted speed was compared with a measurement yet";
  return fmt::format("prediction error: {}; where the model was sure: {}; {} trials took {:.2f} % of the time",
                     text_of(e.all), text_of(e.sure), e.trials, e.ran > 0 ? 100 * e.paid / e.ran : 0);
}

nlohmann::ordered_json json_of(const PredictionErrors& e) {
  return {{"all", json_of(e.all)}, {"sure", json_of(e.sure)}, {"trials", e.trials}, {"paid", e.paid}, {"ran", e.ran}};
}

}  // namespace elinvar::pool
