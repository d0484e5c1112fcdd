#pragma once
// Repeats updates of a run in this process alone, as a job with one worker makes them. Used for whole runs
// (tools/repro/rerun.h), and by a worker of another build to prove that it computes the run's bits.
#include <functional>
#include <string>
#include <vector>

#include "elastic/ledger/ledger.h"
#include "elastic/session/replay.h"
#include "tools/training/training.h"

namespace elinvar {

// Callbacks: the part to which the following ops belong ("leaf 3", "reduction", "update", and "" at the end), and each
// batch.
struct RemakeCallbacks {
  std::function<void(const std::string& phase)> at = [](const std::string&) {};
  std::function<void(int vrank, const Batch& batch)> batch = [](int, const Batch&) {};
};

// Makes the next update of the replay and returns its facts: those of a ledger line except the state.
LedgerLine make_again(Training& training, Replay& replay, const RemakeCallbacks& callbacks = {});

// Makes the first `count` updates of a run. They begin with the training's present state and change it.
std::vector<LedgerLine> make_first_updates(Training& training, int64_t count);

}  // namespace elinvar
