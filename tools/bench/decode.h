#pragma once
// A token more of a text, for language models with random weights, with and without a cache of keys and values. At best
// it takes as long as reading the weights once: GB/s are of weights and cache.
#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> decode_names();
void run_decode(const std::string& name, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
