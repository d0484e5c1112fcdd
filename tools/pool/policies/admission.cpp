#include "tools/pool/policies/admission.h"

#include <algorithm>

namespace elinvar::pool {

std::vector<size_t> admit(Offer& offer) {
  std::vector<size_t> in;
  for (const size_t i : offer.order()) {
    const Job& job = offer.pool().jobs[i];
    if (offer.wish(i).mix.empty() && job.running()) {
      Mix own;
      int left = job.min_workers;
      for (const auto& [kind, n] : offer.present(i))
        if (const int stay = std::min({n, left, offer.free(kind) / job.form.width}); stay > 0)
          own[kind] = stay, left -= stay;
      const bool runs = left == 0 && job.speed->rate(own, job.form).samples > 0;  // else it has run out of memory
      if (runs && offer.fits(i, own, job.form)) offer.give(i, own, job.form, "goes on with its minimum");
    }
    if (offer.wish(i).mix.empty())
      if (std::optional<Wish> least = offer.least(i)) offer.give(i, least->mix, least->form, least->reason);
    if (!offer.wish(i).mix.empty()) in.push_back(i);
  }
  return in;
}

}  // namespace elinvar::pool
