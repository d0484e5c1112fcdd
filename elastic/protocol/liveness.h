#pragma once
// Who is taken for gone, by the clock alone: workers that are silent, that hang, or that wait for a message that is
// lost (PROTOCOL.md, "Death"); and by when to look again. It changes no worker's state: the coordinator evicts those
// that it names.
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/hang.h"
#include "elastic/protocol/job_state.h"

namespace elinvar {

class Liveness {
 public:
  Liveness(JobState& job, Seconds now) : job_(job), patience_(job.options.stuck), deaf_from_(now), look_by_(now) {}

  // The coordinator has waited for what comes next until now: from here on it hears nobody until forgive_absence().
  void woke(Seconds now);
  // It listens again. Time for which it did not is not counted as anybody's silence.
  void forgive_absence(Seconds now);
  // It listens until the time that look_by() gives: when a worker would be silent, and at most a second away, or less
  // where something is `soon` to come.
  void rest(Seconds now, bool soon);
  Seconds look_by() const { return look_by_; }

  // Workers that are silent and are to be evicted. If nobody who could go on is heard, the job is deserted instead, for
  // options.hold at most.
  std::vector<Hung> silent(Seconds now);
  std::optional<Seconds> deserted() const { return deserted_; }  // since when everyone who has the state is silent
  std::vector<Hung> hung(Seconds now) const;                     // members of the current generation that hang

  // How long all may wait while nothing comes before a message counts as lost.
  Seconds patience() const { return patience_.at(job_.completed()); }
  void lost_message() { patience_.lost(job_.completed()); }
  // A member waits in vain although it lives.
  FenceReason stuck(Seconds patience, Seconds now);

 private:
  JobState& job_;
  Patience patience_;
  Seconds deaf_from_, look_by_;
  Seconds no_hang_until_ = 0;
  std::optional<Seconds> deserted_;
};

}  // namespace elinvar
