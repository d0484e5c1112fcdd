#pragma once
// Requests that a person sends to a running job with `ctl`.
#include <functional>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"
#include "tools/config/config.h"

namespace elinvar {

// Carries out a request. Returns the answer, or an error if the request cannot be carried out. Arrangements must suit
// the job's configuration.
messages::Answer control(const messages::Ctl& asked, Coordinator& coordinator, const Config& config,
                         const std::function<void()>& start_worker, const std::function<nlohmann::json()>& status,
                         Seconds now);

}  // namespace elinvar
