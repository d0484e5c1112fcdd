#pragma once
// The timeline of one step of a run with a profile (`train run --profile`), for its page: what each worker's loop did,
// and how much of the time the stages of pipelines computed nothing.
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "elastic/step/generation.h"
#include "tools/repro/report_arrangement.h"

namespace elinvar {

// Shows the profiled step of median length.
//
// {"step","generation","seconds","kinds":{"forward",..},"names":[..],"rows":[{"worker","replica","stage",
//    "spans":[[name,from,to,depth,vrank],..]}],"rows_left_out","bubbles":[{"replica","measured","predicted",
//    "scheduled"}],"bubbles_left_out"}
//
// Spans are ascending, in seconds since the first worker began the step; workers on several hosts are aligned by their
// clocks. `name` is an index in "names" of {"name","kind"}; kinds are forward, backward, wait, exchange, update and
// other, with the part of all workers' time that each takes. Depth 1: within a pass. vrank is -1 if the worker works
// for none. A bubble is the part of the time, from the first pass of a replica's pipeline to its last, in which its
// members compute no pass: measured; as the schedule of 1F1B predicts it from the segments' seconds, or else from the
// stages' parts of the work (elastic/step/pipeline.h); and as it predicts it from the seconds of these passes. Null if
// not known. `generation_of`: the generation that completed a step, or null.
//
// `trace` is a joined profile (tools/training/profile_report.h). Null if it has no whole step.
nlohmann::ordered_json profiled_step(const nlohmann::ordered_json& trace, const ReportedSegments& segments,
                                     const std::function<const Generation*(int64_t step)>& generation_of);

}  // namespace elinvar
