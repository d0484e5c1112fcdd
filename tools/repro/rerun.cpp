#include "tools/repro/rerun.h"

#include "elastic/checkpoint/whole_state.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

std::optional<Checkpoint> newest_checkpoint(const RunRecord& run, int64_t most) {
  std::vector<int64_t> steps = run.checkpoints();
  for (; !steps.empty(); steps.pop_back()) {
    if (steps.back() > most) continue;
    try {
      return run.checkpoint(steps.back());
    } catch (const Failure& damaged) {
      if (steps.back() == 0) throw;  // the run began with imported weights, which are lost
      fmt::print(stderr, "{}\n", damaged.what());
    }
  }
  return std::nullopt;
}

// Loads the newest undamaged checkpoint.
Replay begin(const RunRecord& run, Training& training, int64_t most) {
  const std::optional<Checkpoint> from = newest_checkpoint(run, most);
  if (from) training.setup.load(from->state);
  const int64_t first = from ? from->step : 0;
  std::vector<GenerationScaling::Change> batches;
  for (const auto& [step, line] : run.lines()) note_batch(batches, training.config().run.batch_size, line);
  return Replay(training.member(), first,
                first > 0 ? scaling_state_of(from->state) : ScalingState{.batch = training.scaling.batch},
                std::move(batches));
}

}  // namespace

Rerun::Rerun(const RunRecord& run, Device device, int64_t most)
    : training_(read_run_config(run.path()), device), replay_(begin(run, training_, most)) {}

StateDict Rerun::state() const {
  const auto scaling_state = training_.adaptive() ? std::optional(replay_.member().scaling().made()) : std::nullopt;
  return whole_state(training_.setup.state(), step(), scaling_state);
}

LedgerLine Rerun::advance(const RemakeCallbacks& callbacks) {
  LedgerLine line = make_again(training_, replay_, callbacks);
  line.state = digest(state());
  return line;
}

}  // namespace elinvar
