#pragma once
// Single operations at sizes common in training.
#include "tensor/stream.h"
#include "tools/bench/report.h"

namespace elinvar::bench {

// Runs the cases whose name contains `filter`. On a GPU, products and convolutions are reported with the cuBLAS product
// of the same extents.
void run_ops(Device device, const std::string& filter, int repeat, Report& report);

}  // namespace elinvar::bench
