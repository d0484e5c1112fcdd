#include "tools/pool/policies/admission.h"

#include <algorithm>
#include <utility>

#include "tools/pool/policies/growth.h"

namespace elinvar::pool {
namespace {

constexpr int kRounds = 4;  // in which wide workers are cut to what hosts have room for

// Gives the job its minimum if it has nothing and the minimum fits.
bool let_in(Offer& offer, size_t i) {
  const Job& job = offer.pool().jobs[i];
  if (offer.wish(i).mix.empty() && job.running()) {
    Mix own;
    int left = job.min_workers;
    for (const auto& [kind, n] : offer.present(i))
      if (const int stay = std::min({n, left, offer.free(kind) / job.form.width}); stay > 0)
        own[kind] = stay, left -= stay;
    const bool runs = left == 0 && job.speed->rate(own, job.form).samples > 0;  // false if it has run out of memory
    if (runs && offer.fits(i, own, job.form)) offer.give(i, own, job.form, "goes on with its minimum");
  }
  if (offer.wish(i).mix.empty())
    if (std::optional<Wish> least = offer.least(i)) offer.give(i, least->mix, least->form, least->reason);
  return !offer.wish(i).mix.empty();
}

// The same, taking slots from jobs of lower priority, the lowest first; they get back what did not help.
bool let_in_before_others(Offer& offer, size_t i, const std::vector<size_t>& order) {
  const std::vector<Job>& jobs = offer.pool().jobs;
  std::vector<std::pair<size_t, Wish>> taken;
  bool in = let_in(offer, i);
  for (auto other = order.rbegin(); !in && other != order.rend(); ++other) {
    const Wish wish = offer.wish(*other);
    if (jobs[*other].priority >= jobs[i].priority || offer.must(*other) || wish.mix.empty()) continue;
    taken.emplace_back(*other, wish);
    offer.give(*other, {}, wish.form, "gives its slots to a job of higher priority");
    in = let_in(offer, i);
  }
  for (auto had = taken.rbegin(); had != taken.rend(); ++had)
    if (offer.fits(had->first, had->second.mix, had->second.form))
      offer.give(had->first, had->second.mix, had->second.form, had->second.reason);
  return in;
}

}  // namespace

std::vector<size_t> admit(Offer& offer) {
  std::vector<size_t> in;
  for (const size_t i : offer.order())
    if (let_in(offer, i)) in.push_back(i);
  return in;
}

bool may_wait(const Offer& offer, size_t i) {
  const std::vector<Job>& jobs = offer.pool().jobs;
  return offer.allowed(i, {}, jobs[i].form) &&
         std::none_of(jobs.begin(), jobs.end(), [&](const Job& other) { return other.priority < jobs[i].priority; });
}

Plan settled(Offer& offer, const Worth& worth, std::string note, double gap) {
  const std::vector<size_t> order = offer.order();
  for (int round = 1;; ++round) {
    std::vector<size_t> late;
    for (const size_t i : order)
      if (offer.wish(i).mix.empty() && let_in_before_others(offer, i, order)) late.push_back(i);
    grow(offer, worth, late);
    Plan plan = offer.plan(note, gap);
    bool whole = true;
    for (size_t i = 0; i < plan.decisions.size(); ++i) {
      const Decision& decision = plan.decisions[i];
      Mix mix = mix_of(offer.pool(), decision.slots, decision.form);
      if (mix == offer.wish(i).mix) continue;
      whole = false;
      offer.give(i, std::move(mix), decision.form, decision.reason);
    }
    if (whole || round == kRounds) return plan;
  }
}

}  // namespace elinvar::pool
