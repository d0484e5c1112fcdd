#pragma once
// The utility of an allocation, by which policies weigh jobs against each other.
//
// Jobs count samples of different sizes, so speed is measured in *references*: one is the speed of one worker of the
// job's minimum on the kind that suits it best. The utility of an allocation is the work that the job does with it
// within the pool's horizon (or until the job would end with its present allocation, if that is sooner), minus the cost
// of the change (`change_of`), times 2 for each step of priority, and times 4 while a deadline is at stake. A waiting
// job is not charged for its start, which it must pay anyway, but only the part of the horizon after the start counts.
#include <vector>

#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// An allocation that a job may get.
struct Option {
  Allocation allocation;
  WorkerShape shape;
  double utility = 0;  // weighted reference-seconds within the horizon
  int slots() const { return workers(allocation) * shape.width; }
};

class Utility {
 public:
  explicit Utility(const Offer& offer);

  bool can_run(size_t job) const { return reference_[job] > 0; }
  double speed(size_t job, const Allocation& allocation, const WorkerShape& shape) const;  // in references
  double weight(size_t job) const { return weight_[job]; }
  double left(size_t job) const;  // reference-seconds to its end

  // Returns the option of this allocation, given the job's current one; an empty allocation is the option of waiting.
  Option option(size_t job, const Allocation& allocation, const WorkerShape& shape) const;
  // Returns the best of the job's shapes for this allocation, among those of one slot per worker and its current one.
  Option option(size_t job, const Allocation& allocation) const;
  // Does the same over all shapes for a number of *slots* of a kind; wide shapes make fewer workers of them.
  std::vector<Option> options(size_t job, const std::string& kind, int slots) const;

  // Whether an allocation of several kinds wastes too much to be considered
  // (tools/pool/profiling/heterogeneous_split.h).
  bool wasteful(size_t job, const Allocation& allocation, const WorkerShape& shape) const;

 private:
  const Offer& offer_;
  const Pool& pool_;
  std::vector<double> reference_, weight_, window_;
};

}  // namespace elinvar::pool
