#pragma once
// Single operations at the sizes that training meets.
#include "tensor/stream.h"
#include "tools/bench/report.h"

namespace elinvar::bench {

// The cases whose name contains `filter`. On a GPU, products and convolutions stand beside the product of the same
// extents by cuBLAS.
void run_ops(Device device, const std::string& filter, int repeat, Report& report);

}  // namespace elinvar::bench
