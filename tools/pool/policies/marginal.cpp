// Marginal gain, after EasyScale's scheduler between jobs (Li et al., SC'23, section 3.4). Each job proposes the growth
// with the greatest gain per slot by its speed model; the policy takes the best proposal until none gains or nothing is
// free. If a prediction fails, that is, a job that has grown runs at less than four fifths of the predicted speed, the
// job goes back to its previous size and does not grow in this plan. heterogeneous_split.h gives the speed of workers
// of several kinds.
#include <fmt/format.h>

#include <algorithm>

#include "tools/pool/policies/admission.h"
#include "tools/pool/policies/growth.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

constexpr double kTrust = 0.8;

// Returns where the job was before, if its present size was predicted to be better and is not.
std::optional<Measurement> fallen_back(const Offer& offer, size_t i) {
  const Job& job = offer.pool().jobs[i];
  if (job.measured.size() < 2 || !job.running()) return {};
  const Measurement& now = job.measured.back();
  if (now.workers != offer.present(i) || now.shape != job.shape || now.predicted <= 0) return {};
  if (now.rate >= kTrust * now.predicted) return {};
  for (size_t k = job.measured.size() - 1; k-- > 0;) {
    const Measurement& before = job.measured[k];
    if (before.workers == now.workers || before.shape != now.shape) continue;
    const bool smaller = workers(before.workers) < workers(now.workers);
    return smaller && before.rate * workers(now.workers) > now.rate * workers(before.workers) &&
                   offer.fits(i, before.workers, before.shape)
               ? std::optional(before)
               : std::nullopt;
  }
  return {};
}

}  // namespace

Plan marginal(const Pool& pool) {
  Offer offer(pool);
  const Utility utility(offer);
  std::vector<size_t> growing;
  for (const size_t i : admit(offer)) {
    if (const std::optional<Measurement> back = fallen_back(offer, i)) {
      offer.give(i, back->workers, back->shape,
                 fmt::format("goes back to {}: {} made {:.3g} of {:.3g} samples/s", text_of(back->workers),
                             text_of(offer.present(i)), pool.jobs[i].measured.back().rate,
                             pool.jobs[i].measured.back().predicted));
    } else {
      growing.push_back(i);
    }
  }
  grow(offer, utility, growing);
  return settled(offer, utility);
}

}  // namespace elinvar::pool
