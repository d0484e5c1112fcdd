#pragma once
// Updates that were made before, made again by this process alone: leaves, reduction and update are those of a job with
// one worker. For whole runs (tools/repro/rerun.h), and for a worker of another build, which shows by the first updates
// of a run that it computes its bits.
#include <functional>
#include <string>
#include <vector>

#include "elastic/ledger.h"
#include "elastic/replay.h"
#include "tools/train/training.h"

namespace elinvar {

// What the ops that follow belong to: "leaf 3", "reduction", "update", and "" at the end; and each batch.
struct ToldOfRemaking {
  std::function<void(const std::string& phase)> at = [](const std::string&) {};
  std::function<void(int vrank, const Batch& batch)> batch = [](int, const Batch&) {};
};

// Makes the next update of the replay and returns its facts: those of a line of the ledger, but for the state.
LedgerLine make_again(Training& training, Replay& replay, const ToldOfRemaking& told = {});

// The first `count` updates of a run that begins with the state that the training has now, which changes.
std::vector<LedgerLine> make_first_updates(Training& training, int64_t count);

}  // namespace elinvar
