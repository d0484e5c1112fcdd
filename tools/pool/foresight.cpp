#include "tools/pool/foresight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/pool/advisor.h"

namespace elinvar::pool {
namespace {

Foresight::Errors errors_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  const auto at = [&](double part) {
    return errors[static_cast<size_t>(std::lround(part * static_cast<double>(errors.size() - 1)))];
  };
  return {errors.size(), at(0.5), at(0.9)};
}

nlohmann::ordered_json json_of(const Foresight::Errors& e) {
  return {{"count", e.count}, {"median", e.median}, {"high", e.high}};
}

std::string text_of(const Foresight::Errors& e) {
  return fmt::format("{:.1f} % (median), {:.1f} % (90 %) off in {}", 100 * e.median, 100 * e.high, e.count);
}

}  // namespace

Foresight foresight_of(std::span<const std::vector<Measurement>> jobs) {
  Foresight foresight;
  std::vector<double> all, sure;
  for (const std::vector<Measurement>& measured : jobs) {
    double best = 0;
    for (const Measurement& m : measured) {
      best = std::max(best, m.rate);
      foresight.ran += m.seconds;
      foresight.trials += m.trial;
      if (m.predicted <= 0 || m.rate <= 0 || m.seconds < kTrialSeconds) continue;
      const double error = std::abs(m.predicted / m.rate - 1);
      all.push_back(error);
      if (m.doubt < kSure) sure.push_back(error);
    }
    if (best > 0) foresight.paid += trials_cost(measured, RescaleCosts{}) / best;
  }
  foresight.all = errors_of(std::move(all));
  foresight.sure = errors_of(std::move(sure));
  return foresight;
}

std::string text_of(const Foresight& f) {
  if (f.all.count == 0) return "no prediction of a speed was put to the test yet";
  return fmt::format("predictions of speed: {}; of which it was sure: {}; {} trials took {:.2f} % of the time",
                     text_of(f.all), text_of(f.sure), f.trials, f.ran > 0 ? 100 * f.paid / f.ran : 0);
}

nlohmann::ordered_json json_of(const Foresight& f) {
  return {{"all", json_of(f.all)}, {"sure", json_of(f.sure)}, {"trials", f.trials}, {"paid", f.paid}, {"ran", f.ran}};
}

}  // namespace elinvar::pool
