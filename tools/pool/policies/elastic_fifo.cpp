// Elastic first come, first served with backfill, after Elan's scheduler (Xie et al., ICDCS'20). A job whose minimum
// fits starts at once, while others shrink towards their minimum. The slots that are left go to jobs in the order of
// their arrival, each up to the size at which a further worker would be less than half used.
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
  const Utility utility(offer);
  for (const size_t i : admit(offer))
    while (const std::optional<Growth> growth = best_growth(offer, utility, i)) {
      double alone = 0, grown = utility.speed(i, growth->option.allocation, growth->option.shape);
      for (const auto& [kind, n] : growth->option.allocation)
        alone += (n - count_of(offer.grant(i).allocation, kind)) * utility.speed(i, {{kind, 1}}, growth->option.shape);
      const double use = (grown - utility.speed(i, offer.grant(i).allocation, offer.grant(i).shape)) / alone;
      if (use < kLeastUse) break;
      offer.give(i, growth->option.allocation, growth->option.shape,
                 fmt::format("{} in the order of arrival", text_of(growth->option.allocation)));
    }
  return settled(offer, utility);
}

}  // namespace elinvar::pool
