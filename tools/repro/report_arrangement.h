#pragma once
// How a run's generations divided state and work among their workers (elastic/ARRANGEMENT.md), for its page.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastic/step/generation.h"

namespace elinvar {

// The segments of a network, of which pipelines are made: the run's newest event "segments".
struct ReportedSegments {
  std::vector<std::string> names;
  std::vector<double> seconds;  // of both passes through each
};
ReportedSegments segments_of(const std::vector<nlohmann::json>& events);

// {"generations":[{"number","step","workers","text","reason","replicas_left_out",
//    "replicas":[{"vranks","stages":[{"segments","names","work","members":[{"id","shards":[begin,end],"part"}]}]}]}],
//  "generations_left_out"}
// step: the first one, counted from 1; null if it is not known. "replicas" is empty if each worker computes all of the
// network. The oldest generations are left out if there are very many. Null if no generation divided anything.
nlohmann::ordered_json arrangements(const std::vector<Generation>& generations,
                                    const std::vector<nlohmann::json>& events);

}  // namespace elinvar
