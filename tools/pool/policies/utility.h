#pragma once
// The utility of an allocation, by which policies weigh jobs against each other.
//
// Jobs count samples of different sizes, so speed is measured in *references*: one is the speed of one worker of the
// job's minimum on the kind that suits it best. The utility of an allocation is what the job gets done with it within
// the pool's horizon (or until it would end with what it has, if that is sooner), less what it loses by the change to
// it
// (`change_of`); with a weight of 2 for each step of priority and 4 while a deadline is at stake. A job that waits
// loses nothing by its start, which is to be paid whenever it starts: of the horizon only what is left after it counts.
#include <vector>

#include "tools/pool/policies/offer.h"

namespace elinvar::pool {

// What a job may get.
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

  // The option of having this, given what the job has at present; an empty allocation: of having nothing.
  Option option(size_t job, const Allocation& allocation, const WorkerShape& shape) const;
  // The best of the job's shapes for this allocation, among those of one slot a worker and its present one.
  Option option(size_t job, const Allocation& allocation) const;
  // The same over all shapes, and so many *slots* of a kind: wide shapes make fewer workers of them.
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
