#pragma once
// Assigns virtual ranks to workers: pure functions of speeds. The assignment affects only time, never a result.
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

// Assigns [0, vranks) in contiguous intervals, at most one for each worker, so that the last worker to finish, max(size
// / speed), finishes as early as whole virtual ranks allow. Speeds are positive and in any common unit. Each worker
// gets at least `least`, of which there must be enough.
std::vector<std::vector<Interval>> assign(int vranks, std::span<const double> speeds, int least = 0);

// Reassigns after a death: each worker keeps its ranks in `kept`, and each orphaned virtual rank goes to the worker
// that would finish with it first. Intervals come out ascending, with adjacent ones joined.
std::vector<std::vector<Interval>> assign_orphans(int vranks, std::vector<std::vector<Interval>> kept,
                                                  std::span<const double> speeds);

// Returns the time of a step under an assignment, in virtual ranks / speed.
double step_time(std::span<const std::vector<Interval>> shares, std::span<const double> speeds);

}  // namespace elinvar
