#pragma once
// The digests of the states that the members of a run agreed on, as its coordinator knows them: the newest ones, which
// facts and checkpoints report, and those in the ledger.
#include <cstdint>
#include <map>
#include <optional>

#include "elastic/ledger/ledger.h"

namespace elinvar {

class AgreedStates {
 public:
  explicit AgreedStates(const Ledger& ledger) : ledger_(ledger) {}

  void add(int64_t step, const Digest& state);   // the state after `step` updates
  std::optional<Digest> at(int64_t step) const;  // null: not known
  void forget_what_is_ahead();                   // drops states after the ledger's end

 private:
  const Ledger& ledger_;
  std::map<int64_t, Digest> newest_;
};

}  // namespace elinvar
