#include "elastic/protocol/batch_scaling.h"

#include <algorithm>

namespace elinvar {

void BatchScaling::take_over(const CoordinatorRecords& records) {
  if (!job_.adaptive()) return;
  begin_history(records.newest ? records.newest->number + 1 : 1);
  if (!records.newest || !records.newest->scaling) return;
  base_workers_ = records.newest->scaling->base_workers;
  if (records.members_alive) history_ = records.newest->scaling->history;
}

void BatchScaling::begin_history(int64_t number) {
  if (!job_.adaptive()) return;
  job_.steps = INT64_MAX >> 2;
  recorded_ = job_.world.begin_history();
  batch_ = recorded_.scaling_state.batch;
  history_ = number;
}

bool BatchScaling::of_this_history(const Message& message) const {
  return !job_.adaptive() || message.generation >= history_;
}

void BatchScaling::measure(const StepFacts& facts) {
  const UpdateFacts& update = *facts.update;
  if (!job_.adaptive() || update.batch_size == 0) return;
  batch_ = update.batch_size;
  if (update.samples != batch_ || update.seconds.size() != job_.current->members.size()) return;
  MeasuredStep step{.batch = batch_, .vranks = job_.options.plan.vranks, .reduce_seconds = update.reduce_seconds};
  for (size_t i = 0; i < update.seconds.size(); ++i) {
    const ReplicaPlace& place = job_.current->members[i].place;
    const int shards = job_.current->shards;
    // The time is that of this member alone; a replica is as slow as its slowest member.
    const double seconds = shards > 0 ? update.seconds[i] * portion(shards, place) : update.seconds[i];
    if (shards > 0 && i > 0 && place.replica == job_.current->members[i - 1].place.replica) {
      step.rank_seconds.back() = std::max(step.rank_seconds.back(), seconds);
      continue;
    }
    step.ranks.push_back(total(job_.current->share(static_cast<int>(i), facts.step)));
    step.rank_seconds.push_back(seconds);
  }
  profile_ = measured(profile_, step);
}

int BatchScaling::replicas(int workers) const { return (workers - 1) / job_.arrangement.replica() + 1; }

std::optional<Scaled> BatchScaling::other_batch(size_t workers, bool larger) const {
  if (!job_.adaptive() || job_.completed() < recorded_.steps) return std::nullopt;
  const PlanLimits& plan = job_.options.plan;
  const Scaled scaled =
      scale(job_.options.scaling, plan.vranks, replicas(base_workers_), replicas(static_cast<int>(workers)), profile_,
            job_.arrangement.replica() > 1 ? "model replicas" : "workers");
  if (larger ? scaled.batch <= batch_ : scaled.batch == batch_) return std::nullopt;
  return scaled;
}

std::optional<GenerationScaling> BatchScaling::record(size_t workers) {
  if (!job_.adaptive()) return std::nullopt;
  if (base_workers_ == 0) base_workers_ = static_cast<int>(workers);
  GenerationScaling scaling{.base_workers = base_workers_, .history = history_};
  if (job_.completed() <= recorded_.steps) scaling.recorded = recorded_.changes;
  return scaling;
}

}  // namespace elinvar
