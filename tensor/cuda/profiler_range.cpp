#include "tensor/profiler_range.h"

#include <nvtx3/nvToolsExt.h>

namespace elinvar {

void push_range(const char* name) { nvtxRangePushA(name); }
void pop_range() { nvtxRangePop(); }

}  // namespace elinvar
