#include "tools/pool/policies/admission.h"

#include <algorithm>
#include <utility>

#include "tools/pool/policies/growth.h"
#include "tools/pool/policies/priority.h"

namespace elinvar::pool {
namespace {

constexpr int kRounds = 4;  // rounds in which grants of wide workers are cut to what hosts have room for

// Gives the job its minimum if it has nothing and the minimum fits. Returns whether the job has slots.
bool let_in(Offer& offer, size_t i) {
  const Job& job = offer.pool().jobs[i];
  if (offer.grant(i).allocation.empty() && job.running()) {
    Allocation own;
    int left = job.min_workers;
    for (const auto& [kind, n] : offer.present(i))
      if (const int stay = std::min({n, left, offer.free(kind) / job.shape.width}); stay > 0)
        own[kind] = stay, left -= stay;
    const bool runs = left == 0 && job.speed->rate(own, job.shape).samples > 0;  // false if it has run out of memory
    if (runs && offer.fits(i, own, job.shape)) offer.give(i, own, job.shape, "goes on with its minimum");
  }
  if (offer.grant(i).allocation.empty())
    if (std::optional<Grant> least = offer.least(i)) offer.give(i, least->allocation, least->shape, least->reason);
  return !offer.grant(i).allocation.empty();
}

// Does the same, but takes slots from jobs of lower priority, the lowest first. Jobs get back slots that were not
// needed.
bool let_in_before_others(Offer& offer, size_t i, const std::vector<size_t>& order) {
  const std::vector<Job>& jobs = offer.pool().jobs;
  std::vector<std::pair<size_t, Grant>> taken;
  bool in = let_in(offer, i);
  for (auto other = order.rbegin(); !in && other != order.rend(); ++other) {
    const Grant grant = offer.grant(*other);
    if (jobs[*other].priority >= jobs[i].priority || offer.must(*other) || grant.allocation.empty()) continue;
    taken.emplace_back(*other, grant);
    offer.give(*other, {}, grant.shape, "gives its slots to a job of higher priority");
    in = let_in(offer, i);
  }
  for (auto had = taken.rbegin(); had != taken.rend(); ++had)
    if (offer.fits(had->first, had->second.allocation, had->second.shape))
      offer.give(had->first, had->second.allocation, had->second.shape, had->second.reason);
  return in;
}

}  // namespace

std::vector<size_t> admit(Offer& offer) {
  std::vector<size_t> in;
  for (const size_t i : by_priority(offer))
    if (let_in(offer, i)) in.push_back(i);
  return in;
}

bool may_wait(const Offer& offer, size_t i) {
  const std::vector<Job>& jobs = offer.pool().jobs;
  return offer.allowed(i, {}, jobs[i].shape) &&
         std::none_of(jobs.begin(), jobs.end(), [&](const Job& other) { return other.priority < jobs[i].priority; });
}

Plan settled(Offer& offer, const Utility& utility, std::string note, double gap) {
  const std::vector<size_t> order = by_priority(offer);
  for (int round = 1;; ++round) {
    std::vector<size_t> late;
    for (const size_t i : order)
      if (offer.grant(i).allocation.empty() && let_in_before_others(offer, i, order)) late.push_back(i);
    grow(offer, utility, late);
    Plan plan = offer.plan(note, gap);
    bool whole = true;
    for (size_t i = 0; i < plan.decisions.size(); ++i) {
      const Decision& decision = plan.decisions[i];
      Allocation allocation = allocation_of(offer.pool(), decision.slots, decision.shape);
      if (allocation == offer.grant(i).allocation) continue;
      whole = false;
      offer.give(i, std::move(allocation), decision.shape, decision.reason);
    }
    if (whole || round == kRounds) return plan;
  }
}

}  // namespace elinvar::pool
