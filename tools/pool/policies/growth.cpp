#include "tools/pool/policies/growth.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar::pool {

std::optional<Growth> best_growth(const Offer& offer, const Utility& utility, size_t i) {
  const Job& job = offer.pool().jobs[i];
  const Grant& grant = offer.grant(i);
  if (grant.allocation.empty() || !utility.can_run(i)) return {};
  const double now = utility.option(i, grant.allocation, grant.shape).utility;
  std::optional<Growth> best;
  const auto consider = [&](const Allocation& more, int added) {
    if (!offer.fits(i, more, grant.shape) || utility.speed(i, more, grant.shape) <= 0) return;
    if (utility.wasteful(i, more, grant.shape)) return;
    Option option = utility.option(i, more, grant.shape);
    const int slots = added * grant.shape.width;
    const double gain = (option.utility - now) / slots;
    if (gain > 1e-9 * std::abs(now) && (!best || gain > best->gain)) best = Growth{std::move(option), slots, gain};
  };
  const int room = job.max_workers - workers(grant.allocation);
  for (const std::string& kind : offer.kinds()) {
    const int most = std::min(room, offer.free(kind) / grant.shape.width);
    const int back = count_of(offer.present(i), kind) - count_of(grant.allocation, kind);
    const auto grown = [&](int n) {
      Allocation more = grant.allocation;
      more[kind] += n;
      consider(more, n);
    };
    for (int n = 1; n < most; n *= 2) grown(n);
    if (most > 0) grown(most);
    if (back > 0 && back < most) grown(back);
  }
  // Considers the job's whole current allocation, which may have several kinds.
  if (grant.shape == job.shape) {
    Allocation all = grant.allocation;
    for (const auto& [kind, n] : offer.present(i)) all[kind] = std::max(all[kind], n);
    std::erase_if(all, [](const auto& entry) { return entry.second == 0; });
    if (const int added = workers(all) - workers(grant.allocation); added > 0) consider(all, added);
  }
  return best;
}

void grow(Offer& offer, const Utility& utility, const std::vector<size_t>& jobs) {
  std::vector<std::optional<Growth>> proposals;
  for (const size_t i : jobs) proposals.push_back(best_growth(offer, utility, i));
  for (;;) {
    size_t best = jobs.size();
    for (size_t k = 0; k < jobs.size(); ++k)
      if (proposals[k] && (best == jobs.size() || proposals[k]->gain > proposals[best]->gain)) best = k;
    if (best == jobs.size()) return;
    const size_t i = jobs[best];
    const Option& option = proposals[best]->option;
    // A proposal may not fit any more, because another job has grown since it was made.
    if (offer.fits(i, option.allocation, option.shape))
      offer.give(i, option.allocation, option.shape,
                 fmt::format("{}: the last {} gain {:.2f} of a worker each", text_of(option.allocation),
                             proposals[best]->slots, proposals[best]->gain / offer.pool().horizon / utility.weight(i)));
    proposals[best] = best_growth(offer, utility, i);
  }
}

}  // namespace elinvar::pool
