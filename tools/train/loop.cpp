#include "tools/train/loop.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "nn/clip.h"
#include "nn/leaf.h"
#include "nn/running_statistics.h"
#include "tensor/check.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// Leaves meet on the CPU, wherever they were computed.
std::vector<Tensor> all_to(std::vector<Tensor> tensors, Device device) {
  for (Tensor& t : tensors) t = t.to(device);
  return tensors;
}

// With a session that it may be open in, its gradients go there as they become ready.
Leaf compute_leaf(const Job& job, const Batch& batch, int64_t step, int vrank, std::vector<Statistic>& statistics,
                  Session* opened = nullptr) {
  if (batch.samples == 0) return {};
  const Rng rng{
      .seed = job.config.run.seed, .step = static_cast<uint32_t>(step), .vrank = static_cast<uint32_t>(vrank)};
  std::vector<Tensor> terms;
  LeafProgress progress;
  progress.forward = [&](const LeafResult& result) {
    terms = all_to(running_terms(result.statistics), Device{});
    if (opened) opened->open(vrank, result.count, terms);
  };
  if (opened) progress.gradient = [&](size_t i, const Tensor& gradient) { opened->put(i, gradient.to(Device{})); };
  LeafResult result = leaf(*job.network, batch.input.to(job.device), batch.target, job.config.loss, rng,
                           job.config.run.recompute, progress);
  statistics = std::move(result.statistics);
  return {.gradients = all_to(std::move(result.gradients), Device{}),
          .terms = std::move(terms),
          .facts = {.loss_sum = result.loss_sum,
                    .count = result.count,
                    .correct = result.correct,
                    .samples = batch.samples,
                    .batch = digest(StateDict{{"input", batch.input}, {"target", batch.target}})}};
}

// The norm is finite if and only if every element is: squares of floats cannot overflow a double.
void check_finite(int64_t step, double loss, double gradient_norm) {
  constexpr const char* kHint = "a lower learning rate, a longer warm-up or clipping (optimizer.clip_norm) may help";
  if (!std::isfinite(loss))
    fail("step {}: the loss is {}; {}", step + 1, std::isnan(loss) ? "not a number" : "infinite", kHint);
  if (!std::isfinite(gradient_norm)) fail("step {}: the reduced gradient is not finite; {}", step + 1, kHint);
}

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

}  // namespace

void train(Job& job, const std::shared_ptr<const Dataset>& validation, Loader& loader, Session& session, int64_t steps,
           const ScalingOptions& scaling) {
  const Config& config = job.config;
  const int vranks = config.run.virtual_ranks;
  const bool adaptive = scaling.batch > 0;
  const auto score_due = [&](int64_t step) { return step > 0 && (session.last() || due(step, config.run.eval_every)); };
  std::vector<Statistic> statistics;  // of any leaf: which batch norms there are

  while (session.begin()) {
    const int64_t step = session.step();
    if (!session.knows_layout()) session.works_on("the first leaf");
    if (!session.knows_layout())
      for (int vrank = 0; !session.knows_layout(); vrank = (vrank + 1) % vranks)
        session.learn_layout(
            compute_leaf(job, loader.batch(step % loader.steps_per_epoch(), vrank), step, vrank, statistics));
    const Pace pace = session.pace();
    const Cursor at = adaptive ? Cursor{pace.samples, pace.batch} : loader.cursor(step);
    while (const std::optional<int> vrank = session.next()) {
      Leaf leaf;
      if (!session.last()) {
        Batch batch = loader.batch(at, *vrank);
        if (batch.samples > 0) session.reads(*vrank, batch.input);
        leaf = compute_leaf(job, batch, step, *vrank, statistics, session.opens(*vrank) ? &session : nullptr);
      }
      const bool scores = score_due(step) && session.owns(*vrank);
      if (scores) session.works_on("an evaluation");
      if (scores) leaf.facts.attached = to_json(score(job, validation, *vrank, vranks));
      session.add(*vrank, std::move(leaf));
    }
    if (!session.reduce()) continue;

    const Reduced& reduced = session.reduced();
    Json extra;
    if (score_due(step)) {
      const Score total = sum(scores_from(reduced.facts));
      extra["validation"] = {{"loss", total.loss}, {"accuracy", total.accuracy}, {"samples", total.samples}};
    }
    if (!session.last()) {
      const std::vector<Tensor> gradients = all_to(reduced.gradients, job.device);
      const Clipping clipping = clip_by_global_norm(gradients, config.optimizer.clip_norm);
      check_finite(step, reduced.loss, clipping.norm);
      // Where the batch changes the schedule goes by what has been seen.
      const int64_t scheduled = adaptive ? loader.step_at(reduced.pace.samples) : step;
      double lr = learning_rate(config.schedule, config.optimizer.lr, steps, scheduled);
      if (adaptive) lr *= lr_factor(reduced.pace, step, scaling);
      job.optimizer->step(job.network->parameters, gradients, lr, step, clipping.scale);
      update_running_statistics(statistics, reduced.terms, reduced.leaves);
      extra["lr"] = lr;
      if (adaptive) extra["position"] = loader.step_at(reduced.pace.samples + reduced.samples);
      extra["gradient_norm"] = clipping.norm;
    }
    session.advance(extra);
  }
}

}  // namespace elinvar
