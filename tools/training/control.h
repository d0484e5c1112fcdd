#pragma once
// What a person asks of a running job by `ctl`.
#include <functional>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

// Does what the body of a "ctl" message asks for; the body of its answer, with an "error" where that cannot be.
nlohmann::json control(const nlohmann::json& asked, Coordinator& coordinator, const std::function<void()>& start_worker,
                       const std::function<nlohmann::json()>& status, Seconds now);

}  // namespace elinvar
