#pragma once
// Training steps of whole networks: forward, backward and update, on random data of the case's size.
#include <string>
#include <vector>

#include "tools/bench/report.h"

namespace elinvar::bench {

std::vector<std::string> model_cases();
void run_model(const std::string& name, int64_t batch, int warm_up, int repeat,
               Report& report);  // batch 0: the case's own

}  // namespace elinvar::bench
