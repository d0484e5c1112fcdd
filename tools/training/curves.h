#pragma once
// The curves of a run, as metrics.jsonl has them (tools/training/metrics.h).
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
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

struct ValidationPoint {
  int64_t step = 0;
  double loss = CurvePoint::kNone, accuracy = CurvePoint::kNone;
};

struct Curves {
  std::vector<CurvePoint> points;  // by step
  std::vector<ValidationPoint> validation;
  bool tokens = false;  // what `rate` counts, a second; else samples

  // A line of metrics.jsonl; false if it makes no sense.
  bool add(const nlohmann::json& line);
};

}  // namespace elinvar
