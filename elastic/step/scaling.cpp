#include "elastic/step/scaling.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

double averaged(double before, double now) { return before == 0 ? now : 0.7 * before + 0.3 * now; }

}  // namespace

Profile measured(const Profile& profile, const MeasuredStep& step) {
  check(step.batch > 0 && step.ranks.size() == step.rank_seconds.size() && !step.ranks.empty(),
        "[scaling] a batch and the number of virtual ranks of each member expected");
  Profile next = profile;
  double sum = 0, slowest = 0;
  int known = 0;
  for (size_t i = 0; i < step.ranks.size(); ++i) {
    if (step.rank_seconds[i] <= 0) continue;
    sum += step.rank_seconds[i];
    ++known;
    slowest = std::max(slowest, step.rank_seconds[i] * step.ranks[i]);
  }
  if (known == 0) return profile;
  next.sample_seconds = averaged(profile.sample_seconds, sum / known * step.vranks / static_cast<double>(step.batch));
  const auto others = static_cast<double>(step.ranks.size() - 1);
  if (others > 0) {
    const double waited = slowest - step.rank_seconds[0] * step.ranks[0];
    next.exchange_seconds = averaged(profile.exchange_seconds, std::max(0.0, step.reduce_seconds - waited) / others);
  }
  return next;
}

int best_workers(int64_t batch, int vranks, const Profile& profile) {
  if (profile.sample_seconds <= 0) return vranks;
  const double rank_seconds = profile.sample_seconds * static_cast<double>(batch) / vranks;
  int best = 1;
  double shortest = 0;
  for (int workers = 1; workers <= vranks; ++workers) {
    const int turns = (vranks + workers - 1) / workers;
    const double seconds = rank_seconds * turns + profile.exchange_seconds * (workers - 1);
    if (workers > 1 && seconds >= shortest) continue;
    shortest = seconds;
    best = workers;
  }
  return best;
}

Scaled scale(const ScalingOptions& options, int vranks, int base_workers, int workers, const Profile& profile,
             std::string_view unit) {
  check(options.batch > 0 && options.batch_max >= options.batch && vranks > 0 && base_workers > 0 && workers > 0,
        "[scaling] a batch from 1 to its maximum, virtual ranks and workers expected");
  // Workers beyond the number of virtual ranks are spares.
  const int base = std::min(base_workers, vranks), used = std::min(workers, vranks);
  for (int64_t k = 1; k == 1 || (k * base <= used && k * options.batch <= options.batch_max); k *= 2) {
    const int64_t batch = k * options.batch;
    if (used > base && best_workers(batch, vranks, profile) < used) continue;
    return {batch, fmt::format("{} {} share a batch of {}", workers, unit, batch)};
  }
  const int64_t batch = std::min(options.batch_max, options.batch * used / base);
  return {batch, fmt::format("a batch of {}, {} for each of {} {}", batch, batch / used, workers, unit)};
}

}  // namespace elinvar
