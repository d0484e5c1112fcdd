#pragma once
// Requests that a person sends to a running job with `ctl`.
#include <functional>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"
#include "tools/config/config.h"

namespace elinvar {

// The workers on the coordinator's machine.
struct WorkerStarter {
  std::function<void()> start = {};
  std::function<void(int count)> end = {};  // ends so many of those that are coming
  int coming = 0;                           // started already, but not known to the coordinator yet
};

// Carries out a request. Returns the answer, or an error if the request cannot be carried out. Arrangements must suit
// the job's configuration.
messages::Answer control(const messages::Ctl& asked, Coordinator& coordinator, const Config& config,
                         const WorkerStarter& workers, const std::function<nlohmann::json()>& status, Seconds now);

}  // namespace elinvar
