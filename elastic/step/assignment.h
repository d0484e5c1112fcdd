#pragma once
// Who computes which virtual ranks: pure functions of speeds. No result depends on them, only time does.
#include <span>
#include <vector>

#include "tensor/fields.h"

namespace elinvar {

// The virtual ranks [begin, end).
struct Interval {
  int begin = 0, end = 0;
  int size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
  ELINVAR_FIELDS(begin, end)
};

int total(std::span<const Interval> intervals);
bool contains(std::span<const Interval> intervals, int vrank);

// Assigns [0, vranks) in contiguous intervals, one or none each, so that the last to finish, max(size / speed),
// finishes as early as whole virtual ranks allow. Speeds are in any common unit, positive.
std::vector<std::vector<Interval>> assign(int vranks, std::span<const double> speeds);

// After a death: everyone keeps what it has in `kept`, and each virtual rank that nobody has goes to whoever would be
// finished with it first. Intervals come out ascending, neighbours joined.
std::vector<std::vector<Interval>> assign_orphans(int vranks, std::vector<std::vector<Interval>> kept,
                                                  std::span<const double> speeds);

// The time of a step under an assignment, in virtual ranks / speed.
double step_time(std::span<const std::vector<Interval>> shares, std::span<const double> speeds);

}  // namespace elinvar
