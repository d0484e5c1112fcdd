#pragma once
// How generations begin and change: the first one, planned ones, and those that recover an interrupted step. Makes
// their records, and tells the workers (PROTOCOL.md, "Planned changes", "The beginning", "Death").
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
  const std::string& stop_reason() const { return wishes_.stop; }  // "": nobody asked for it, nor does it follow

  // Each of the three that make a record asks for a fence where another coordinator has made one of the same number. If
  // that coordinator has a later term, the job has ended here.

  // Begins the first generation once enough workers have the state, or asks for a fence where they are fewer than the
  // job needs. Ends the job if no worker can read the state.
  FenceReason start(Seconds now);
  void wait_for_starters(Seconds now);  // there is no generation any more: from now on as at the beginning
  // Begins the generation that a fence was for.
  FenceReason recover(Recovery recovery, const std::optional<Trial>& trial, const std::string& reason, Seconds now);
  // Proposes a change, where one is called for and none is under way.
  FenceReason propose(Seconds now);

  // All members hold the proposal, and one has told: it is the current generation.
  void switch_to_proposal(Seconds now);
  // Those that are members no more, once nobody needs what they have.
  std::vector<PeerId> released() const;

 private:
  Generation next(const std::vector<PeerId>& peers, const std::string& reason, const std::vector<PeerId>& joining = {});
  bool create(const Generation& generation);
  FenceReason taken();
  void begin(const Generation& generation, Seconds now);

  JobState& job_;
  BatchScaling& scaling_;
  GroupPlanner& groups_;
  const FactsOnFile& facts_;
  Wishes wishes_;
  Seconds start_until_;  // then min_workers are enough for the first generation
  Seconds changed_;      // the newest record, or when its generation began
};

}  // namespace elinvar
