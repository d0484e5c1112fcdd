#pragma once
// What a person asks of a running job by `ctl`.
#include <functional>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

// Does what is asked, and returns the answer, with an error where it cannot be done.
messages::Answer control(const messages::Ctl& asked, Coordinator& coordinator,
                         const std::function<void()>& start_worker, const std::function<nlohmann::json()>& status,
                         Seconds now);

}  // namespace elinvar
