#include "tools/pool/policies/offer.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tensor/base/check.h"
#include "tensor/base/failure.h"
#include "tools/pool/policies/assignment.h"

namespace elinvar::pool {
namespace {

// Returns the first `n` workers of an allocation, in the job's order of kinds.
Allocation first_of(const Allocation& allocation, int n, const Job& job) {
  std::vector<std::string> kinds = job.kinds;
  if (kinds.empty())
    for (const auto& [kind, count] : allocation) kinds.push_back(kind);
  Allocation taken;
  for (const std::string& kind : kinds)
    if (const int m = std::min(n, count_of(allocation, kind)); m > 0) taken[kind] = m, n -= m;
  return taken;
}

}  // namespace

Offer::Offer(const Pool& pool, Running running)
    : pool_(pool),
      running_(running),
      grants_(pool.jobs.size()),
      present_(pool.jobs.size()),
      must_(pool.jobs.size(), false) {
  std::unordered_map<Id, const Slot*> usable;
  for (const Slot& slot : pool.slots)
    if (!slot.expiring(pool.now)) {
      usable[slot.id] = &slot;
      ++total_[slot.kind];
      if (!slot.combinable) single_.insert(slot.kind);
    }
  for (const auto& [kind, n] : total_) kinds_.push_back(kind);
  free_ = total_;
  for (size_t i = 0; i < pool.jobs.size(); ++i) {
    const Job& job = pool.jobs[i];
    const size_t width = job.shape.width;
    for (size_t at = 0; at + width <= job.slots.size(); at += width) {
      bool there = true;
      for (size_t k = 0; k < width; ++k) there = there && usable.count(job.slots[at + k]);
      if (there) ++present_[i][usable[job.slots[at]]->kind];
    }
    grants_[i] = {{}, job.shapes.front(), "waits for slots"};
    const int has = workers(present_[i]);
    if (has < job.min_workers) continue;
    must_[i] = pool.now - job.since < pool.turn;
    if (running == Running::kStay) {
      give(i, present_[i], job.shape, "goes on as it is");
    } else if (must_[i]) {
      give(i, first_of(present_[i], job.min_workers, job), job.shape, "in its turn");
    }
  }
  start_with_musts();
}

void Offer::start_with_musts() {
  for (const size_t i : due_jobs(pool_)) {
    const std::optional<Grant> least = this->least(i);
    if (!least) {
      waits_ = i;
      break;
    }
    must_[i] = true;
    give(i, least->allocation, least->shape, "is due");
  }
  if (!waits_) return;
  grants_[*waits_].reason = "is due; slots are kept for it as others leave them";
  most_.resize(pool_.jobs.size());
  for (size_t i = 0; i < pool_.jobs.size(); ++i) {
    most_[i] = slots_of(present_[i], pool_.jobs[i].shape);
    for (const auto& [kind, n] : slots_of(grants_[i].allocation, grants_[i].shape))
      most_[i][kind] = std::max(most_[i][kind], n);
  }
}

Allocation Offer::slots_of(const Allocation& allocation, const WorkerShape& shape) const {
  Allocation slots;
  for (const auto& [kind, n] : allocation) slots[kind] = n * shape.width;
  return slots;
}

int Offer::slots(const std::string& kind) const { return count_of(total_, kind); }

int Offer::free(const std::string& kind) const { return count_of(free_, kind); }

bool Offer::suits(const Allocation& allocation, const WorkerShape& shape) const {
  return shape.width == 1 || std::none_of(allocation.begin(), allocation.end(),
                                          [&](const auto& entry) { return single_.contains(entry.first); });
}

bool Offer::allowed(size_t i, const Allocation& allocation, const WorkerShape& shape) const {
  const Job& job = pool_.jobs[i];
  const int n = workers(allocation);
  if (n == 0) return !must_[i];
  if (n < job.min_workers || n > job.max_workers) return false;
  if (std::find(job.shapes.begin(), job.shapes.end(), shape) == job.shapes.end()) return false;
  if (!suits(allocation, shape)) return false;
  for (const auto& [kind, count] : slots_of(allocation, shape)) {
    if (!job.allows(kind) || count > slots(kind)) return false;
    if (waits_ && pool_.jobs[*waits_].allows(kind) && count > count_of(most_[i], kind)) return false;
  }
  // A job that must have slots does not rely on new wide workers, which need hosts with enough free slots.
  if (!must_[i] || shape.width == 1) return true;
  int stay = 0;
  for (const auto& [kind, count] : allocation) stay += std::min(count, count_of(present_[i], kind));
  return shape == job.shape && stay >= job.min_workers;
}

bool Offer::fits(size_t i, const Allocation& allocation, const WorkerShape& shape) const {
  if (!allowed(i, allocation, shape)) return false;
  const Allocation has = slots_of(grants_[i].allocation, grants_[i].shape);
  for (const auto& [kind, n] : slots_of(allocation, shape))
    if (n > free(kind) + count_of(has, kind)) return false;
  return true;
}

void Offer::give(size_t i, Allocation allocation, WorkerShape shape, std::string reason) {
  for (const auto& [kind, n] : slots_of(grants_[i].allocation, grants_[i].shape)) free_[kind] += n;
  for (const auto& [kind, n] : slots_of(allocation, shape)) {
    free_[kind] -= n;
    invariant(free_[kind] >= 0, "a policy gives what does not fit");
  }
  grants_[i] = {std::move(allocation), shape, std::move(reason)};
}

void Offer::give_all(std::vector<Grant> grants) {
  for (size_t i = 0; i < grants_.size(); ++i) give(i, {}, grants_[i].shape, "");
  for (size_t i = 0; i < grants_.size(); ++i)
    give(i, grants[i].allocation, grants[i].shape, std::move(grants[i].reason));
}

std::optional<Grant> Offer::least(size_t i) const {
  const Job& job = pool_.jobs[i];
  const std::vector<std::string>& order = job.kinds.empty() ? kinds_ : job.kinds;
  for (const WorkerShape& shape : job.shapes)
    for (const std::string& kind : order) {
      const Allocation allocation{{kind, job.min_workers}};
      if (shape.width == 1 && fits(i, allocation, shape) && job.speed->rate(allocation, shape).samples > 0)
        return Grant{allocation, shape, "starts with its minimum"};
    }
  const bool one_kind_would_do = std::any_of(order.begin(), order.end(), [&](const std::string& kind) {
    return slots(kind) >= job.min_workers &&
           std::any_of(job.shapes.begin(), job.shapes.end(), [&](const WorkerShape& shape) {
             return shape.width == 1 && job.speed->rate({{kind, job.min_workers}}, shape).samples > 0;
           });
  });
  if (running_ == Running::kStay && one_kind_would_do) return {};
  for (const WorkerShape& shape : job.shapes) {
    Allocation allocation;
    int left = job.min_workers;
    for (const std::string& kind : order)
      if (const int n = std::min(left, free(kind)); shape.width == 1 && n > 0 && job.allows(kind))
        allocation[kind] = n, left -= n;
    if (left == 0 && fits(i, allocation, shape) && job.speed->rate(allocation, shape).samples > 0)
      return Grant{allocation, shape, "starts with its minimum, of several kinds"};
  }
  return {};
}

Plan Offer::plan(std::string note, double gap) const {
  Plan plan = assign(pool_, grants_);
  plan.note = std::move(note);
  plan.gap = gap;
  return plan;
}

}  // namespace elinvar::pool
