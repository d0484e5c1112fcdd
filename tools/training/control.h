#pragma once
// Requests that a person sends to a running job with `ctl`.
#include <functional>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

// Carries out a request. Returns the answer, or an error if the request cannot be carried out.
messages::Answer control(const messages::Ctl& asked, Coordinator& coordinator,
                         const std::function<void()>& start_worker, const std::function<nlohmann::json()>& status,
                         Seconds now);

}  // namespace elinvar
