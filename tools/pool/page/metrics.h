#pragma once
// A pool's numbers for Prometheus: the page /metrics.
#include <string>

#include "tools/pool/store/store.h"

namespace elinvar::pool {

std::string pool_metrics(const Store& store);

}  // namespace elinvar::pool
