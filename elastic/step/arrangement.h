#pragma once
// How a job divides state and work among its workers (ARRANGEMENT.md). It decides no bit of the result.
#include <string>
#include <string_view>

#include "tensor/fields.h"

namespace elinvar {

struct Arrangement {
  int zero = 0;    // ZeRO's stage, up to kMostZero
  int copies = 2;  // with ZeRO, how many workers keep each bucket of the optimizer's state, if there are enough
  int tp = 1;      // tensor parallelism: the most workers that compute segments of the network together
  int pp = 1;      // pipeline parallelism: the most stages that compute rank gradients one after another

  bool operator==(const Arrangement&) const = default;
  int replica() const { return tp * pp; }  // the most workers of a model replica
  ELINVAR_FIELDS(zero, copies, tp, pp)
};

inline constexpr int kMostZero = 3;
inline constexpr int kMostParallel = 1024;  // workers, also in one dimension

// Reads entries like "dp=2,tp=3,pp=2,zero=1,copies=1" into an arrangement; "" changes nothing. Returns the number of
// model replicas (dp), or 0 if the text does not name it. Throws UsageError that names what was expected.
int read_arrangement(std::string_view text, Arrangement& arrangement);

// Returns the entries that differ from those of data parallelism, "tp=3,zero=1,copies=2" for example, or "zero=0".
std::string to_string(const Arrangement& arrangement);

}  // namespace elinvar
