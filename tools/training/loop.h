#pragma once
// The training loop: a worker's work between its first step and its last.
#include <memory>

#include "elastic/session/session.h"
#include "tools/training/profiler.h"
#include "tools/training/training.h"

namespace elinvar {

// Returns when the session is over. The profiler may be null; it is told of each step. Throws Failure, for example if
// an update cannot be made (tools/training/training.h).
void train(Training& training, const std::shared_ptr<const Dataset>& split, Session& session,
           Profiler* profiler = nullptr);

}  // namespace elinvar
