#pragma once
// The curves of a run: metrics.jsonl (tools/train/metrics.h), cut down to so many points that a page can draw them.
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace elinvar {

// A step as metrics.jsonl has it; what a line lacks, or JSON cannot hold, is not a number.
struct CurvePoint {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0, generation = 0;
  double loss = kNone, accuracy = kNone, lr = kNone, gradient_norm = kNone, rate = kNone, reduce_seconds = kNone,
         workers = kNone, goodput = kNone;
  double time = kNone;                    // seconds of the calendar
  std::vector<double> leaf_seconds = {};  // of each member
};

struct Curves {
  std::vector<CurvePoint> points;
  nlohmann::ordered_json validation = nlohmann::ordered_json::array();  // {"step", "loss", "accuracy"}
  bool tokens = false;                                                  // what `rate` counts, a second; else samples

  // A line of metrics.jsonl; false if it makes no sense.
  bool add(const nlohmann::json& line);
};

// Seconds of the calendar of "2026-05-04T10:11:12.345Z"; not a number if it is none.
double calendar_seconds(const std::string& text);

// At most `most` points. Each stands for as many steps as the others (the last one perhaps for fewer): "step" is the
// last of them, "loss_low" and "loss_high" bound what they had, lr, workers, goodput and "seconds" are those of the
// last, others the mean of all that are finite. `seconds` tells when a point of time was, on the page's axis.
nlohmann::ordered_json binned(const Curves& curves, size_t most, const std::vector<double>& seconds);

// To so many digits that a page needs; what is not finite becomes null.
nlohmann::ordered_json rounded(double value);

}  // namespace elinvar
