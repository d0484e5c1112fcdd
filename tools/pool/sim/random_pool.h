#pragma once
// Pools that are made up: to time policies with, and to test that they keep the rules.
#include <cstdint>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

// So many slots of so many kinds, a few a host, some of them going; jobs of all sorts (shapes, deadlines, priorities,
// waiting for long or just started), those that run on slots that the other policies might have given them.
Pool random_pool(uint64_t seed, int slots, int jobs, int kinds);

// As a busy cluster: jobs of 1 to 64 workers and usual speeds, half of them running as `policy` has assigned; then a
// tenth of the slots is exchanged.
Pool busy_pool(uint64_t seed, int slots, int jobs, int kinds, Plan (*policy)(const Pool&));

}  // namespace elinvar::pool
