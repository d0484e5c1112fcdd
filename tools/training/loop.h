#pragma once
// The training loop, whole: what a worker does between its first step and its last.
#include <memory>

#include "elastic/session/session.h"
#include "tools/training/profiler.h"
#include "tools/training/training.h"

namespace elinvar {

// Returns when the session is over. A profiler, if any, is told of each step. Failure, among others, where an update
// cannot be made (tools/training/training.h).
void train(Training& training, const std::shared_ptr<const Dataset>& split, Session& session,
           Profiler* profiler = nullptr);

}  // namespace elinvar
