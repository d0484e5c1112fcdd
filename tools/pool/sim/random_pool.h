#pragma once
// Random pools, to time policies and to test that they obey the rules.
#include <cstdint>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

// Returns a pool with this many slots of this many kinds, a few per host, some of them going. Its jobs vary in shapes,
// deadlines, priorities and waiting times; running jobs have slots that a policy could have given them.
Pool random_pool(uint64_t seed, int slots, int jobs, int kinds);

// Returns a pool like a busy cluster: jobs of 1 to 64 workers with usual speeds, half of them running as `policy`
// assigned them; a tenth of the slots is replaced afterwards.
Pool busy_pool(uint64_t seed, int slots, int jobs, int kinds, Plan (*policy)(const Pool&));

}  // namespace elinvar::pool
