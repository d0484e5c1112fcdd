#pragma once
// Generates one more token of a text, for language models with random weights, with and without a cache of keys and
// values. The lower bound of the time is one pass over the weights; GB/s count weights and cache.
#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> decode_names();
void run_decode(const std::string& name, int warm_up, int repeat, Report& report);

}  // namespace elinvar::bench
