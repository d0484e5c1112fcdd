#include "tools/pool/policies/growth.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar::pool {

std::optional<Growth> best_growth(const Offer& offer, const Worth& worth, size_t i) {
  const Job& job = offer.pool().jobs[i];
  const Wish& wish = offer.wish(i);
  if (wish.mix.empty() || !worth.can_run(i)) return {};
  const double now = worth.option(i, wish.mix, wish.form).worth;
  std::optional<Growth> best;
  const auto consider = [&](const Mix& more, int added) {
    if (!offer.fits(i, more, wish.form) || worth.speed(i, more, wish.form) <= 0) return;
    if (worth.wasteful(i, more, wish.form)) return;
    Option option = worth.option(i, more, wish.form);
    const int slots = added * wish.form.width;
    const double gain = (option.worth - now) / slots;
    if (gain > 1e-9 * std::abs(now) && (!best || gain > best->gain)) best = Growth{std::move(option), slots, gain};
  };
  const int room = job.max_workers - workers(wish.mix);
  for (const std::string& kind : offer.kinds()) {
    const int most = std::min(room, offer.free(kind) / wish.form.width);
    const int back = count_of(offer.present(i), kind) - count_of(wish.mix, kind);
    const auto grown = [&](int n) {
      Mix more = wish.mix;
      more[kind] += n;
      consider(more, n);
    };
    for (int n = 1; n < most; n *= 2) grown(n);
    if (most > 0) grown(most);
    if (back > 0 && back < most) grown(back);
  }
  // All that it has, of whatever kinds.
  if (wish.form == job.form) {
    Mix all = wish.mix;
    for (const auto& [kind, n] : offer.present(i)) all[kind] = std::max(all[kind], n);
    std::erase_if(all, [](const auto& entry) { return entry.second == 0; });
    if (const int added = workers(all) - workers(wish.mix); added > 0) consider(all, added);
  }
  return best;
}

void grow(Offer& offer, const Worth& worth, const std::vector<size_t>& jobs) {
  std::vector<std::optional<Growth>> proposals;
  for (const size_t i : jobs) proposals.push_back(best_growth(offer, worth, i));
  for (;;) {
    size_t best = jobs.size();
    for (size_t k = 0; k < jobs.size(); ++k)
      if (proposals[k] && (best == jobs.size() || proposals[k]->gain > proposals[best]->gain)) best = k;
    if (best == jobs.size()) return;
    const size_t i = jobs[best];
    const Option& option = proposals[best]->option;
    // What others have taken since it was proposed may be missing now.
    if (offer.fits(i, option.mix, option.form))
      offer.give(i, option.mix, option.form,
                 fmt::format("{}: the last {} gain {:.2f} of a worker each", text_of(option.mix),
                             proposals[best]->slots, proposals[best]->gain / offer.pool().horizon / worth.weight(i)));
    proposals[best] = best_growth(offer, worth, i);
  }
}

}  // namespace elinvar::pool
