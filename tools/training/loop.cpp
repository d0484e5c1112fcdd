#include "tools/training/loop.h"

#include "tensor/base/activity.h"
#include "tensor/device_cache.h"
#include "tools/training/observer.h"
#include "tools/training/validation.h"

namespace elinvar {
namespace {

void tell_profiler(Profiler& profiler, Session& session) {
  if (profiler.closes(session.step())) session.works_on("the profile");
  profiler.step(session.step(), session.worker());
}

// A leaf that counts for nothing shows what leaves consist of: of the first virtual rank that has samples.
void learn_layout(Training& training, Session& session) {
  const int64_t step = session.step();
  session.works_on("the first leaf");
  for (int vrank = 0; !session.knows_layout(); vrank = (vrank + 1) % training.config().run.virtual_ranks) {
    const Batch batch = training.loader.batch(step % training.loader.steps_per_epoch(), vrank);
    session.learn_layout(training.rank_gradient(batch, step, vrank));
  }
}

// Of a virtual rank that this worker computes. A device may have room for one leaf, but not for those before it as
// well: then these make way, and it is computed once more. With `waits` more work follows before the leaf is added:
// what a group of GPUs has begun with is not left to wait for it, since others would take that for a hang.
RankGradient leaf_of(Training& training, Session& session, int64_t step, const Cursor& at, int vrank, bool waits) {
  Batch batch = training.loader.batch(at, vrank);
  if (batch.samples > 0) session.reads(vrank, batch.input);
  if (session.keeps_leaves()) {
    try {
      return training.rank_gradient(batch, step, vrank, !waits && session.opens(vrank) ? &session : nullptr,
                                    /*stays=*/true);
    } catch (const DeviceFull&) {
      if (!session.let_leaves_go()) throw;
    }
  }
  return training.rank_gradient(batch, step, vrank, session.opens(vrank) ? &session : nullptr);
}

// Updates the state, and reports the update.
void update(Training& training, Session& session, int64_t step, const Observer& observer, StepReport& report) {
  const Reduced& reduced = session.reduced();
  const Update made = training.update(step, reduced);
  report.lr = made.lr;
  report.gradient_norm = made.gradient_norm;
  if (training.adaptive()) report.position = training.loader.step_at(reduced.scaling_state.samples + reduced.samples);
  if (!session.leads() || !observer.due(step + 1)) return;
  const Activity activity("a look at tensors");
  session.works_on("a look at tensors");
  session.show(observer.look(step + 1, training.cursor(step, reduced.scaling_state), reduced));
}

}  // namespace

void train(Training& training, const std::shared_ptr<const Dataset>& split, Session& session, Profiler* profiler) {
  const Validation validation(training, split);
  const Observer observer(training);
  while (session.begin()) {
    tell_notices(*training.job.data);
    tell_notices(*split);
    if (profiler != nullptr) tell_profiler(*profiler, session);
    if (!session.knows_layout()) learn_layout(training, session);

    const int64_t step = session.step();
    const Cursor at = training.cursor(step, session.scaling_state());
    while (const std::optional<int> vrank = session.next()) {
      const bool scores = validation.due(step, session) && session.owns(*vrank);
      RankGradient leaf;
      if (!session.last()) leaf = leaf_of(training, session, step, at, *vrank, scores);
      if (scores) leaf.facts.attached = validation.share(*vrank, session);
      session.add(*vrank, std::move(leaf));
    }
    if (!session.reduce()) continue;  // a member is gone: the same step, another plan

    StepReport report;
    if (validation.due(step, session)) report.validation = validation.score(session.reduced().facts);
    if (!session.last()) update(training, session, step, observer, report);
    if (session.leads()) report.readers = training.loader.news();
    session.advance(report);
  }
  tell_notices(*training.job.data);
  tell_notices(*split);
}

}  // namespace elinvar
