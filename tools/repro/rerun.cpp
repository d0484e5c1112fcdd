#include "tools/repro/rerun.h"

#include "elastic/whole_state.h"
#include "tensor/check.h"

namespace elinvar {
namespace {

std::optional<Checkpoint> newest_checkpoint(const RunRecord& run, int64_t most) {
  std::vector<int64_t> steps = run.checkpoints();
  for (; !steps.empty(); steps.pop_back()) {
    if (steps.back() > most) continue;
    try {
      return run.checkpoint(steps.back());
    } catch (const Failure& damaged) {
      if (steps.back() == 0) throw;  // the run did not begin as a new network, and with what nobody knows
      fmt::print(stderr, "{}\n", damaged.what());
    }
  }
  return std::nullopt;
}

// Loads the newest good checkpoint.
Replay begin(const RunRecord& run, Training& training, int64_t most) {
  const std::optional<Checkpoint> from = newest_checkpoint(run, most);
  if (from) training.job.load(from->state);
  const int64_t first = from ? from->step : 0;
  std::vector<GenerationScaling::Change> batches;
  for (const auto& [step, line] : run.lines()) note_batch(batches, training.config().run.batch_size, line);
  return Replay(training.member(), first, first > 0 ? pace_of(from->state) : Pace{.batch = training.scaling.batch},
                std::move(batches));
}

}  // namespace

Rerun::Rerun(const RunRecord& run, Device device, int64_t most)
    : training_(read_run_config(run.path()), device), replay_(begin(run, training_, most)) {}

StateDict Rerun::state() const {
  const auto pace = training_.adaptive() ? std::optional(replay_.member().made()) : std::nullopt;
  return whole_state(training_.job.state(), step(), pace);
}

LedgerLine Rerun::advance(const Told& told) {
  Member& member = replay_.member();
  if (member.next() != Member::Next::leaves || member.last()) fail("the run ends after step {}", step());
  const int64_t step = member.step();
  const Cursor cursor = training_.cursor(step, member.pace());
  LedgerLine line;
  line.step = step + 1;
  for (const int vrank : member.todo()) {
    const Batch batch = training_.loader.batch(cursor, vrank);
    told.batch(vrank, batch);
    told.at(fmt::format("leaf {}", vrank));
    Leaf leaf = training_.leaf(batch, step, vrank);
    told.at("");
    if (!leaf.gradients.empty()) line.leaves[vrank] = digest_in_order(leaf.gradients, leaf.terms).digest;
    told.at("reduction");
    member.add(step, vrank, std::move(leaf), 0);
  }
  member.contribute({});
  const bool complete = member.reduce() == Member::Progress::complete;
  told.at("");
  invariant(complete, "a member that is alone waits for nobody");
  const Reduced reduced = member.take_reduced();
  if (training_.adaptive()) line.batch_size = reduced.pace.batch;
  line.batch = reduced.batch;
  line.loss = reduced.loss;
  line.gradient = digest_in_order(reduced.gradients, reduced.terms).digest;
  told.at("update");
  line.lr = training_.update(step, reduced).lr;
  told.at("");
  replay_.advance();
  line.state = digest(state());
  return line;
}

}  // namespace elinvar
