#include "tools/pool/policies/utility.h"

#include <algorithm>
#include <cmath>

#include "tools/pool/policies/priority.h"
#include "tools/pool/policies/worker_split.h"
#include "tools/pool/profiling/heterogeneous_split.h"

namespace elinvar::pool {

Utility::Utility(const Offer& offer) : offer_(offer), pool_(offer.pool()) {
  for (size_t i = 0; i < pool_.jobs.size(); ++i) {
    const Job& job = pool_.jobs[i];
    double reference = 0;
    for (const std::string& kind : offer.kinds()) {
      if (!job.allows(kind)) continue;
      for (const WorkerShape& shape : job.shapes) {
        if (shape.width > 1 && (shape != job.shape || !offer.suits({{kind, job.min_workers}}, shape))) continue;
        reference = std::max(reference,
                             job.speed->rate({{kind, job.min_workers}}, shape).samples / job.min_workers / shape.width);
      }
    }
    reference_.push_back(reference);
    double now = offer.present(i).empty() ? 0 : speed(i, offer.present(i), job.shape);
    if (now <= 0) now = job.min_workers;
    window_.push_back(reference > 0 ? std::min(pool_.horizon, job.left() / reference / now) : 0);
    weight_.push_back(std::exp2(std::clamp(job.priority, -10, 10)) * (deadline_at_stake(offer, job) ? 4 : 1));
  }
}

double Utility::left(size_t i) const { return can_run(i) ? pool_.jobs[i].left() / reference_[i] : kNever; }

double Utility::speed(size_t i, const Allocation& allocation, const WorkerShape& shape) const {
  if (allocation.empty() || !can_run(i)) return 0;
  return pool_.jobs[i].speed->rate(allocation, shape).samples / reference_[i];
}

Option Utility::option(size_t i, const Allocation& allocation, const WorkerShape& shape) const {
  const Job& job = pool_.jobs[i];
  Option option{allocation, shape, 0};
  if (!can_run(i)) return option;
  const Allocation& present = offer_.present(i);
  if (present.empty()) {
    // The start-up cost is due whenever the job starts, so waiting saves nothing; it only shortens the horizon.
    const double after = std::max(0.0, pool_.horizon - job.costs.start);
    option.utility = weight_[i] * speed(i, allocation, shape) * std::min(window_[i], after);
    return option;
  }
  Allocation kept;
  if (shape == job.shape)
    for (const auto& [kind, n] : allocation)
      if (const int stay = std::min(n, count_of(present, kind)); stay > 0) kept[kind] = stay;
  double lost = change_of(job, present, kept, allocation, shape).samples / reference_[i];
  // A stopped job must be started again.
  if (allocation.empty()) lost += job.costs.start * speed(i, present, job.shape);
  option.utility = weight_[i] * (speed(i, allocation, shape) * window_[i] - lost);
  return option;
}

Option Utility::option(size_t i, const Allocation& allocation) const {
  const Job& job = pool_.jobs[i];
  Option best{allocation, job.shapes.front(), -kNever};
  for (const WorkerShape& shape : job.shapes)
    if (shape.width == 1 || (shape == job.shape && job.running()))
      if (offer_.suits(allocation, shape) && speed(i, allocation, shape) > 0)
        if (Option option = this->option(i, allocation, shape); option.utility > best.utility) best = std::move(option);
  return best;
}

std::vector<Option> Utility::options(size_t i, const std::string& kind, int slots) const {
  std::vector<Option> found;
  for (const WorkerShape& shape : pool_.jobs[i].shapes) {
    if (slots % shape.width != 0) continue;
    const Allocation allocation{{kind, slots / shape.width}};
    // Wide shapes that were never measured are left to trials.
    if (shape.width > 1 && pool_.jobs[i].speed->rate(allocation, shape).error >= kFamiliar) continue;
    if (offer_.allowed(i, allocation, shape) && speed(i, allocation, shape) > 0)
      found.push_back(option(i, allocation, shape));
  }
  return found;
}

bool Utility::wasteful(size_t i, const Allocation& allocation, const WorkerShape& shape) const {
  const Job& job = pool_.jobs[i];
  if (allocation.size() < 2 || job.virtual_ranks == 0) return false;
  std::vector<DeviceGroup> devices;
  for (const auto& [kind, n] : allocation) devices.push_back({n, job.speed->rate({{kind, 1}}, shape).samples});
  return heterogeneous_split(job.virtual_ranks, devices).waste > kMostWaste;
}

}  // namespace elinvar::pool
