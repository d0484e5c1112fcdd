#pragma once
// The arrangement of a running job (elastic/ARRANGEMENT.md) for people: who computes what, and who keeps what.
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace elinvar {

// Returns lines of at most 100 columns that show a job's status (Coordinator::status) by model replica, stage and
// worker. A worker's "part" is that of a step's work in the segments and virtual shards of its virtual ranks. Throws
// UsageError if the status comes from a program that does not tell the arrangement.
std::string arrangement_text(const nlohmann::json& status);

}  // namespace elinvar
