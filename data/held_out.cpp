#include "data/held_out.h"

#include <algorithm>

#include "data/permutation.h"
#include "tensor/base/setting.h"
#include "tensor/philox.h"

namespace elinvar {

std::vector<int64_t> held_out(int64_t n, double fraction, bool training, const char* what) {
  const auto held = static_cast<int64_t>(static_cast<double>(n) * fraction);
  check_setting(held > 0 && held < n, "data.validation_fraction",
                "= {} of {} {} leaves {} and {}; both must be more than none", fraction, n, what, n - held, held);
  const Permutation order(n, key_of("data.held_out"), 0);
  std::vector<int64_t> places;
  for (int64_t i = training ? held : 0; i < (training ? n : held); ++i) places.push_back(order(i));
  std::ranges::sort(places);
  return places;
}

}  // namespace elinvar
