#include "tools/training/loop.h"

#include "tools/training/observer.h"
#include "tools/training/stage_work.h"
#include "tools/training/validation.h"

namespace elinvar {
namespace {

// Computes the gradients of this worker's virtual ranks. They stay unfinished if the step is over for this worker.
void compute_gradients(Training& training, const Validation& validation, Session& session) {
  const StepView& step = session.step();
  const Cursor at = training.cursor(step.number, step.scaling_state);
  if (!step.last) training.touch(at);  // rows of absent tables are fetched where passes look them up
  const bool scored = validation.due(step);
  StageWork stage(training, at, step.number);
  try {
    while (Session::Task* const task = session.next()) {
      const int vrank = task->vrank();
      const bool scores = scored && task->counts() && task->attaches();
      if (scores) task->work_follows();
      RankFacts facts;
      if (task->pass() != nullptr) {
        stage.compute(*task);
        if (!task->pass()->last) continue;  // passes of other rank gradients come first
        facts = stage.finish(*task);
      } else if (!step.last && task->computes()) {
        facts = training.rank_gradient(training.loader.batch(at, vrank), step.number, vrank, *task);
        session.measured(training.segment_seconds());
      }
      if (scores) facts.attached = validation.share(vrank, task->shards());
      task->finish(std::move(facts));
    }
  } catch (const Session::StepOver&) {
    session.give_up();
  }
}

// Updates the state and fills in the step's report. Returns false if the step is over for this worker, which then
// begins again.
bool update(Training& training, const Observer& observer, Session& session, const Reduced& reduced,
            StepReport& report) {
  const StepView& step = session.step();
  const auto gather = [&](std::vector<double> sums) { return session.gather_sums(sums, kSumsPerSegment); };
  Update made;
  try {
    made = training.update(step.number, reduced, gather);
  } catch (const Session::StepOver&) {
    return false;
  }
  if (!session.exchange_values()) return false;
  training.finish_update(step.number);
  report.lr = made.lr;
  report.gradient_norm = made.gradient_norm;
  if (training.adaptive()) report.position = training.loader.step_at(reduced.scaling_state.samples + reduced.samples);
  if (step.leads && observer.due(step.number + 1))
    session.show(observer.look(step.number + 1, training.cursor(step.number, reduced.scaling_state), reduced));
  return true;
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

    compute_gradients(training, validation, session);
    const Reduced* const reduced = session.reduce();
    if (reduced == nullptr) continue;  // a member is gone: go on with the step

    StepReport report;
    if (!step.last && !update(training, observer, session, *reduced, report)) continue;
    if (validation.due(step)) report.validation = validation.score(reduced->facts);
    if (step.leads) report.readers = training.loader.news();
    session.advance(report);
  }
  print_notices(*training.setup.data);
  print_notices(*split);
}

}  // namespace elinvar
