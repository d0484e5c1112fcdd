#pragma once
// Decides by the clock alone which workers count as gone: those that are silent, that hang, or that wait for a lost
// message (PROTOCOL.md, "Death"). Also decides when to look again. It changes no worker's state; the coordinator evicts
// the workers that it names.
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/hang.h"
#include "elastic/protocol/job_state.h"

namespace elinvar {

class Liveness {
 public:
  Liveness(JobState& job, Seconds now) : job_(job), patience_(job.options.stuck), deaf_from_(now), look_by_(now) {}

  // The coordinator's wait for the next event has ended: it hears no worker from `now` until forgive_absence().
  void wait_ended(Seconds now);
  // The coordinator listens again. Excludes the time in which it did not from every worker's silence.
  void forgive_absence(Seconds now);
  // The coordinator listens until look_by(): until a worker would be silent, for at most a second, or for less if an
  // event is expected `soon`.
  void rest(Seconds now, bool soon);
  Seconds look_by() const { return look_by_; }

  // Returns silent workers to evict. If no worker with the state is heard, returns none and marks the job deserted, for
  // options.hold at most.
  std::vector<Hung> silent(Seconds now);
  std::optional<Seconds> deserted() const { return deserted_; }  // since when every worker with the state is silent
  std::vector<Hung> hung(Seconds now) const;                     // hanging members of the current generation

  // Returns how long all members may wait without receiving anything before a message counts as lost.
  Seconds patience() const { return patience_.at(job_.completed()); }
  void lost_message() { patience_.lost(job_.completed()); }
  // Returns a reason for a fence if a member that lives has waited longer than `patience`.
  FenceReason stuck(Seconds patience, Seconds now);

 private:
  JobState& job_;
  Patience patience_;
  Seconds deaf_from_, look_by_;
  Seconds no_hang_until_ = 0;
  std::optional<Seconds> deserted_;
};

}  // namespace elinvar
