#pragma once
// The workers of a job in numbers: how many it has on slots of each kind.
#include <map>
#include <string>

namespace elinvar::pool {

using Allocation = std::map<std::string, int>;  // workers of each kind; no kind with 0

// Returns the number of all workers.
int workers(const Allocation& allocation);

// Returns the number of workers of a kind.
int count_of(const Allocation& allocation, const std::string& kind);

// "3 V100 + 1 T4"
std::string text_of(const Allocation& allocation);

}  // namespace elinvar::pool
