#include "elastic/run/agreed_states.h"

namespace elinvar {

constexpr size_t kMost = 64;  // digests that are kept in memory; the ledger has those that were due

void AgreedStates::add(int64_t step, const Digest& state) {
  newest_[step] = state;
  if (newest_.size() > kMost) newest_.erase(newest_.begin());
}

std::optional<Digest> AgreedStates::at(int64_t step) const {
  const auto found = newest_.find(step);
  if (found != newest_.end()) return found->second;
  if (step < 1 || step > ledger_.length()) return std::nullopt;
  return LedgerLine::parse(ledger_.line(step)).state;
}

void AgreedStates::forget_what_is_ahead() { newest_.erase(newest_.upper_bound(ledger_.length()), newest_.end()); }

}  // namespace elinvar
