#pragma once
// What a policy grants: numbers of slots of each kind to jobs, within the rules of every plan (`violations` in
// tools/pool/plan/state.h); and the plan with single slots that follows.
//
// Policies work with numbers: slots of one kind are interchangeable, and a job that gets more or fewer of them keeps
// those that it has, so no plan moves a worker from one slot to another of its kind.
#include <optional>
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
  // At first, jobs that the rules protect have their minimum: those in their turn from the slots that they have, those
  // that are due from any that suit them. No job gets more of a kind that a due job waits for. With kStay, all running
  // jobs keep what they have.
  enum class Running { kMayShrink, kStay };
  explicit Offer(const Pool& pool, Running running = Running::kMayShrink);

  const Pool& pool() const { return pool_; }
  const std::vector<std::string>& kinds() const { return kinds_; }  // of the slots that can be given
  int slots(const std::string& kind) const;                         // that can be given, in all
  int free(const std::string& kind) const;                          // given to nobody yet
  const Grant& grant(size_t job) const { return grants_[job]; }
  const Allocation& present(size_t job) const {
    return present_[job];
  }                                                   // workers that it has, without those on going slots
  bool must(size_t job) const { return must_[job]; }  // it may not be left with nothing

  // allowed(): whether the rules let the job have this, whatever the others have. fits(): whether there are also enough
  // free slots.
  bool allowed(size_t job, const Allocation& allocation, const WorkerShape& shape) const;
  bool fits(size_t job, const Allocation& allocation, const WorkerShape& shape) const;

  // Replaces what the job had. The allocation must fit; an empty one takes back what the job had.
  void give(size_t job, Allocation allocation, WorkerShape shape, std::string reason);
  // Replaces the grants of all jobs.
  void give_all(std::vector<Grant> grants);

  // Returns the job's minimum in the first worker shape and kind in which it fits; in several kinds if no single one
  // has enough free slots (with kStay: enough slots in all).
  std::optional<Grant> least(size_t job) const;

  // Returns the jobs by priority, then those whose deadline is at stake, then by submission.
  std::vector<size_t> order() const;

  // Whether the job would miss its deadline, or nearly so, with the workers that its user would request.
  bool at_stake(const Job& job) const;

  Plan plan(std::string note = "", double gap = 0) const;

 private:
  void start_with_musts();
  Allocation slots_of(const Allocation& allocation, const WorkerShape& shape) const;

  const Pool& pool_;
  const Running running_;
  std::vector<std::string> kinds_;
  Allocation total_, free_;
  std::vector<Grant> grants_;
  std::vector<Allocation> present_;
  std::vector<bool> must_;
  std::optional<size_t> waits_;   // a due job without room; no other job gets more of its kinds
  std::vector<Allocation> most_;  // if there is one: the slots of each kind that each job may have
};

// The number of workers of a kind; 0 if there are none.
int count_of(const Allocation& allocation, const std::string& kind);

// "3 V100 + 1 T4"
std::string text_of(const Allocation& allocation);

}  // namespace elinvar::pool
