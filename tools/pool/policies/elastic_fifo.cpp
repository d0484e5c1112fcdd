// Elastic first come, first served with backfill, after Elan's scheduler (Xie et al., ICDCS'20): whoever's minimum fits
// is let in at once, others shrinking towards theirs; what is left then goes to the first comers, each up to the size
// at which a further worker would be used to less than half.
#include <fmt/format.h>

#include "tools/pool/policies/admission.h"
#include "tools/pool/policies/growth.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

constexpr double kLeastUse = 0.5;

}  // namespace

Plan elastic_fifo(const Pool& pool) {
  Offer offer(pool);
  const Worth worth(offer);
  for (const size_t i : admit(offer))
    while (const std::optional<Growth> growth = best_growth(offer, worth, i)) {
      double alone = 0, grown = worth.speed(i, growth->option.mix, growth->option.form);
      for (const auto& [kind, n] : growth->option.mix)
        alone += (n - count_of(offer.wish(i).mix, kind)) * worth.speed(i, {{kind, 1}}, growth->option.form);
      const double use = (grown - worth.speed(i, offer.wish(i).mix, offer.wish(i).form)) / alone;
      if (use < kLeastUse) break;
      offer.give(i, growth->option.mix, growth->option.form,
                 fmt::format("{} in the order of arrival", text_of(growth->option.mix)));
    }
  return settled(offer, worth);
}

}  // namespace elinvar::pool
