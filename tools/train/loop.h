#pragma once
// The training loop, whole: what a worker does between its first step and its last.
#include <memory>

#include "data/loader.h"
#include "elastic/session.h"
#include "tools/train/job.h"

namespace elinvar {

// Returns when the session is over. Failure, among others, where the loss or the gradient is not finite (NUMERICS.md,
// rule 22). `steps`: of the whole run; with adaptive scaling, as many as there were with the configured batch.
void train(Job& job, const std::shared_ptr<const Dataset>& validation, Loader& loader, Session& session, int64_t steps,
           const ScalingOptions& scaling);

}  // namespace elinvar
