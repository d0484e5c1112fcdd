#include "tools/training/remake.h"

#include "elastic/checkpoint/state_parts.h"
#include "tensor/base/check.h"

namespace elinvar {

LedgerLine make_again(Training& training, Replay& replay, const RemakeCallbacks& callbacks) {
  Member& member = replay.member();
  if (member.next() != Member::Next::gradients || member.position().last())
    fail("the run ends after step {}", member.position().step);
  const int64_t step = member.position().step;
  const Cursor cursor = training.cursor(step, member.scaling().current());
  training.touch(cursor);
  LedgerLine line;
  line.step = step + 1;
  for (const int vrank : member.gradients().todo()) {
    const Batch batch = training.loader.batch(cursor, vrank);
    callbacks.batch(vrank, batch);
    callbacks.at(fmt::format("leaf {}", vrank));
    RankGradient gradient = training.rank_gradient(batch, step, vrank);
    callbacks.at("");
    if (!gradient.gradients.empty())
      line.leaves[vrank] = digest_in_order(gradient.gradients, gradient.batch_statistics).digest;
    callbacks.at("reduction");
    member.gradients().add(step, vrank, std::move(gradient), 0);
  }
  member.gradients().contribute({});
  const bool complete = member.reduce() == Member::Progress::complete;
  callbacks.at("");
  invariant(complete, "a member that is alone waits for nobody");
  const Reduced reduced = member.reduction().take_reduced();
  if (training.adaptive()) line.batch_size = reduced.scaling_state.batch;
  line.batch = reduced.batch;
  line.loss = reduced.loss;
  line.gradient = digest_in_order(reduced.gradients, reduced.batch_statistics).digest;
  callbacks.at("update");
  line.lr = training.update(step, reduced).lr;
  training.finish_update(step);
  callbacks.at("");
  replay.advance();
  return line;
}

std::vector<LedgerLine> make_first_updates(Training& training, int64_t count) {
  Replay replay(training.member(), 0, ScalingState{.batch = training.scaling.batch});
  std::vector<LedgerLine> lines;
  while (static_cast<int64_t>(lines.size()) < count) lines.push_back(make_again(training, replay));
  return lines;
}

}  // namespace elinvar
