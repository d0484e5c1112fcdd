#pragma once
// How a job divides state and work among its workers (ARRANGEMENT.md). It decides no bit of the result.
#include <string>
#include <string_view>

#include "tensor/fields.h"

namespace elinvar {

struct Arrangement {
  int zero = 0;  // ZeRO's stage, up to kMostZero
  int copies =
      2;  // with ZeRO, the number of workers that keep each bucket of the optimizer's state, if there are enough

  bool operator==(const Arrangement&) const = default;
  ELINVAR_FIELDS(zero, copies)
};

inline constexpr int kMostZero = 2;

// Reads "zero=1" into an arrangement; "" changes nothing. Throws UsageError that names what was expected.
void read_arrangement(std::string_view text, Arrangement& arrangement);

}  // namespace elinvar
