#pragma once
// Begins and changes generations: the first one, planned ones, and those that recover an interrupted step. Creates
// their records and tells the workers (PROTOCOL.md, "Planned changes", "The beginning", "Death").
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/batch_scaling.h"
#include "elastic/protocol/facts_on_file.h"
#include "elastic/protocol/group_planner.h"
#include "elastic/protocol/job_state.h"
#include "elastic/protocol/recovery.h"

namespace elinvar {

class GenerationPlanner {
 public:
  GenerationPlanner(JobState& job, BatchScaling& scaling, GroupPlanner& groups, const FactsOnFile& facts, Seconds now);

  void ask_checkpoint() { wishes_.checkpoint = true; }
  void ask_stop(const std::string& reason);
  const std::string& stop_reason() const { return wishes_.stop; }  // "" unless the run is to stop

  // start(), recover() and propose() create a record. They return a reason for a fence if another coordinator has
  // created one of the same number; if that coordinator has a later term, the job has ended.

  // Begins the first generation once enough workers have the state, or asks for a fence if they are fewer than the job
  // needs. Ends the job if no worker can read the state.
  FenceReason start(Seconds now);
  // With ZeRO: whether no member has the state of some bucket.
  bool lost_state(const Recovery& recovery) const;
  // No generation is left: the job begins again, at once if this many workers have the state. Unless `others_come`, it
  // waits for none of them who is gone.
  void wait_for_starters(int enough, bool others_come, Seconds now);
  // Begins the generation after a fence.
  FenceReason recover(Recovery recovery, const std::optional<Trial>& trial, const std::string& reason, Seconds now);
  // Proposes a change if one is due and none is under way.
  FenceReason propose(Seconds now);

  // Makes the proposal the current generation. All members hold it, and one has reported the switch.
  void switch_to_proposal(Seconds now);
  // Returns the workers that are no longer members and whose results no member needs.
  std::vector<PeerId> released() const;

 private:
  std::vector<int> ids_of(const std::vector<PeerId>& peers) const;
  BucketDeal keepers(const Generation& generation) const;
  bool settled() const;
  void want_better_arrangement();
  void reconsider();
  std::optional<ArrangementChoice> due_arrangement() const;
  void rearrange(const Arrangement& arrangement);
  Generation next(const std::vector<PeerId>& peers, const std::string& reason, const std::vector<PeerId>& joining = {});
  bool create(const Generation& generation);
  FenceReason superseded();
  void begin(const Generation& generation, Seconds now);

  JobState& job_;
  BatchScaling& scaling_;
  GroupPlanner& groups_;
  const FactsOnFile& facts_;
  Wishes wishes_;
  int starters_;  // enough workers for the first generation
  bool others_come_ = true;
  Seconds start_until_;  // after this, min_workers are enough for the first generation
  Seconds changed_;      // when the newest record was made or its generation began
};

}  // namespace elinvar
