#pragma once
// The grants of a policy: numbers of slots of each kind for each job, within the rules of every plan (`violations` in
// tools/pool/plan/state.h). plan() assigns individual slots.
//
// Policies work with numbers: slots of one kind are interchangeable, and a job that gets more or fewer of them keeps
// those that it has, so no plan moves a worker from one slot to another of its kind.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct Grant {
  Allocation allocation;  // empty: it waits
  WorkerShape shape;
  std::string reason;
};

class Offer {
 public:
  // Initially, jobs that the rules protect have their minimum: those in their turn from their own slots, those that are
  // due from any slots that suit them. No job gets more of a kind that a due job waits for. With kStay, all running
  // jobs keep what they have.
  enum class Running { kMayShrink, kStay };
  explicit Offer(const Pool& pool, Running running = Running::kMayShrink);

  const Pool& pool() const { return pool_; }
  const std::vector<std::string>& kinds() const { return kinds_; }  // of the usable slots
  int slots(const std::string& kind) const;                         // usable slots of the kind
  int free(const std::string& kind) const;                          // not granted yet
  const Grant& grant(size_t job) const { return grants_[job]; }
  // Workers that it has, without those on going slots.
  const Allocation& present(size_t job) const { return present_[job]; }
  bool must(size_t job) const { return must_[job]; }  // it may not be left without slots

  // Whether workers on slots of these kinds can have this shape.
  bool suits(const Allocation& allocation, const WorkerShape& shape) const;
  // allowed(): whether the rules permit this allocation, whatever other jobs have. fits(): whether there are also
  // enough free slots.
  bool allowed(size_t job, const Allocation& allocation, const WorkerShape& shape) const;
  bool fits(size_t job, const Allocation& allocation, const WorkerShape& shape) const;

  // Replaces the job's grant. The allocation must fit; an empty one takes all slots from the job.
  void give(size_t job, Allocation allocation, WorkerShape shape, std::string reason);
  // Replaces the grants of all jobs.
  void give_all(std::vector<Grant> grants);

  // Returns the job's minimum in the first worker shape and kind in which it fits; in several kinds if no single one
  // has enough free slots (with kStay: enough slots in all).
  std::optional<Grant> least(size_t job) const;

  Plan plan(std::string note = "", double gap = 0) const;

 private:
  void start_with_musts();
  Allocation slots_of(const Allocation& allocation, const WorkerShape& shape) const;

  const Pool& pool_;
  const Running running_;
  std::vector<std::string> kinds_;
  std::set<std::string> single_;  // kinds of which a worker has one slot
  Allocation total_, free_;
  std::vector<Grant> grants_;
  std::vector<Allocation> present_;
  std::vector<bool> must_;
  std::optional<size_t> waits_;   // a due job without room; other jobs get no more slots of its kinds
  std::vector<Allocation> most_;  // if waits_ is set: the slots of each kind that each job may have
};

}  // namespace elinvar::pool
