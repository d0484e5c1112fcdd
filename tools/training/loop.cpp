#include "tools/training/loop.h"

#include "tools/training/observer.h"
#include "tools/training/validation.h"

namespace elinvar {
namespace {

// Updates the state and returns the step's report; nothing if the step is over for this worker.
std::optional<StepReport> update(Training& training, const Observer& observer, Session& session,
                                 const Reduced& reduced) {
  const StepView& step = session.step();
  const auto gather = [&](std::vector<double> sums) { return session.gather_sums(sums, kSumsPerSegment); };
  Update made;
  try {
    made = training.update(step.number, reduced, gather);
  } catch (const Session::StepOver&) {
    return std::nullopt;
  }
  if (!session.exchange_values()) return std::nullopt;
  training.finish_update(step.number);
  StepReport report{.lr = made.lr, .gradient_norm = made.gradient_norm};
  if (training.adaptive()) report.position = training.loader.step_at(reduced.scaling_state.samples + reduced.samples);
  if (step.leads && observer.due(step.number + 1))
    session.show(observer.look(step.number + 1, training.cursor(step.number, reduced.scaling_state), reduced));
  return report;
}

}  // namespace

void train(Training& training, const std::shared_ptr<const Dataset>& split, Session& session, Profiler* profiler) {
  const Validation validation(training, split);
  const Observer observer(training);
  const StepView& step = session.step();
  while (session.begin()) {
    print_notices(*training.setup.data);
    print_notices(*split);
    if (profiler != nullptr) profiler->step(step.number, step.worker);

    const Cursor at = training.cursor(step.number, step.scaling_state);
    const bool scored = validation.due(step);
    while (Session::Task* const task = session.next()) {
      const int vrank = task->vrank();
      const bool scores = scored && task->counts();
      if (scores) task->work_follows();
      RankFacts facts;
      if (!step.last) facts = training.rank_gradient(training.loader.batch(at, vrank), step.number, vrank, *task);
      if (scores) facts.attached = validation.share(vrank);
      task->finish(std::move(facts));
    }
    const Reduced* const reduced = session.reduce();
    if (reduced == nullptr) continue;  // a member is gone: go on with the step

    std::optional<StepReport> updated = StepReport();
    if (!step.last) updated = update(training, observer, session, *reduced);
    if (!updated) continue;
    StepReport& report = *updated;
    if (scored) report.validation = validation.score(reduced->facts);
    if (step.leads) report.readers = training.loader.news();
    session.advance(report);
  }
  print_notices(*training.setup.data);
  print_notices(*split);
}

}  // namespace elinvar
