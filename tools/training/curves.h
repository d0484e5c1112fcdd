#pragma once
// The curves of a run, read from metrics.jsonl (tools/training/metrics.h).
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace elinvar {

// One step of metrics.jsonl. A number that the line lacks, or that JSON cannot hold, is NaN.
struct CurvePoint {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0, generation = 0;
  double loss = kNone, accuracy = kNone, lr = kNone, gradient_norm = kNone, rate = kNone, reduce_seconds = kNone,
         workers = kNone, goodput = kNone;
  double time = kNone;                    // seconds since the Unix epoch
  std::vector<double> leaf_seconds = {};  // one value for each member
};

struct ValidationPoint {
  int64_t step = 0;
  double loss = CurvePoint::kNone, accuracy = CurvePoint::kNone;
  std::map<std::string, double> metrics = {};  // of the task, by name, without the accuracy
};

struct Curves {
  std::vector<CurvePoint> points;  // sorted by step
  std::vector<ValidationPoint> validation;
  bool tokens = false;  // `rate` counts tokens a second; otherwise samples a second

  // Adds a line of metrics.jsonl. Returns false if the line is malformed.
  bool add(const nlohmann::json& line);
};

}  // namespace elinvar
