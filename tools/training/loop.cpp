#include "tools/training/loop.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "tensor/base/activity.h"
#include "tensor/device_cache.h"
#include "tools/training/observer.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// A virtual rank's share of the validation split travels with its leaf's facts.
Json to_json(const std::vector<BatchScore>& scores) {
  Json json = Json::array();
  for (const BatchScore& s : scores)
    json.push_back({std::bit_cast<uint64_t>(s.loss_sum), s.count, s.correct, s.samples});
  return json;
}

std::vector<BatchScore> scores_from(const std::vector<LeafFacts>& facts) {
  std::vector<BatchScore> scores;
  for (const LeafFacts& share : facts)
    for (const Json& s : share.attached)
      scores.push_back({std::bit_cast<double>(s.at(0).get<uint64_t>()), s.at(1).get<int64_t>(), s.at(2).get<int64_t>(),
                        s.at(3).get<int64_t>()});
  return scores;
}

// Of a virtual rank dealt to this worker. A device may have room for one leaf, but not for those before it as well:
// then these make way, and it is computed once more. What a group of GPUs has begun with is not left to wait for an
// evaluation: others would take it for a hang.
Leaf leaf_of(Training& training, Session& session, const Batch& batch, int64_t step, int vrank, bool scores) {
  if (session.keeps_leaves()) {
    try {
      return training.leaf(batch, step, vrank, !scores && session.opens(vrank) ? &session : nullptr, /*stays=*/true);
    } catch (const DeviceFull&) {
      if (!session.let_leaves_go()) throw;
    }
  }
  return training.leaf(batch, step, vrank, session.opens(vrank) ? &session : nullptr);
}

}  // namespace

void train(Training& training, const std::shared_ptr<const Dataset>& validation, Session& session, Profiler* profiler) {
  const Config& config = training.config();
  Loader& loader = training.loader;
  const int vranks = config.run.virtual_ranks;
  const Observer observer(training);
  const auto score_due = [&](int64_t step) {
    return step > 0 && !session.replays() && (session.last() || due(step, config.run.eval_every));
  };

  while (session.begin()) {
    tell_notices(*training.job.data);
    tell_notices(*validation);
    const int64_t step = session.step();
    if (profiler != nullptr) {
      if (profiler->closes(step)) session.works_on("the profile");
      profiler->step(step, session.worker());
    }
    if (!session.knows_layout()) session.works_on("the first leaf");
    if (!session.knows_layout())
      for (int vrank = 0; !session.knows_layout(); vrank = (vrank + 1) % vranks)
        session.learn_layout(training.leaf(loader.batch(step % loader.steps_per_epoch(), vrank), step, vrank));
    const Cursor at = training.cursor(step, session.pace());
    while (const std::optional<int> vrank = session.next()) {
      Leaf leaf;
      const bool scores = score_due(step) && session.owns(*vrank);
      if (!session.last()) {
        Batch batch = loader.batch(at, *vrank);
        if (batch.samples > 0) session.reads(*vrank, batch.input);
        leaf = leaf_of(training, session, batch, step, *vrank, scores);
      }
      if (scores) session.works_on("an evaluation");
      if (scores) {
        const Activity activity("evaluation");
        leaf.facts.attached = to_json(score(training.job, validation, *vrank, vranks));
      }
      session.add(*vrank, std::move(leaf));
    }
    if (!session.reduce()) continue;

    const Reduced& reduced = session.reduced();
    StepReport report;
    if (score_due(step)) {
      const Score total = sum(scores_from(reduced.facts));
      report.validation = Validation{.loss = total.loss, .accuracy = total.accuracy, .samples = total.samples};
    }
    if (!session.last()) {
      const Update update = training.update(step, reduced);
      report.lr = update.lr;
      if (training.adaptive()) report.position = loader.step_at(reduced.pace.samples + reduced.samples);
      report.gradient_norm = update.gradient_norm;
      if (session.leads() && observer.due(step + 1)) {
        const Activity activity("a look at tensors");
        session.works_on("a look at tensors");
        session.show(observer.look(step + 1, training.cursor(step, reduced.pace), reduced));
      }
    }
    if (session.leads()) report.readers = loader.news();
    session.advance(report);
  }
  tell_notices(*training.job.data);
  tell_notices(*validation);
}

}  // namespace elinvar
