#pragma once
// Returns a pool's numbers in Prometheus' format, for the page /metrics.
#include <string>

#include "tools/pool/store/store.h"

namespace elinvar::pool {

std::string pool_metrics(const Store& store);

}  // namespace elinvar::pool
