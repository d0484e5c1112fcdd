#include "tools/trace/tracer.h"

#include <cstring>

namespace elinvar {

void Tracer::begins(const AnyOp& op, const TraceValues& arguments) {
  std::string phase = phase_;
  if (phase.starts_with("leaf")) phase += std::strcmp(trace_part(), "backward") == 0 ? " backward" : " forward";
  if (keep_ == ops_.size()) {
    kept_ = Reproducer{.op = op.name(), .arguments = copied(arguments)};
    kept_->about["phase"] = phase;
  }
  ops_.push_back({.phase = phase, .name = op.name(), .arguments = described(arguments), .results = {}});
}

void Tracer::ends(const TraceValues& results, const OpWork&) {
  ops_.back().results = described(results);
  if (kept_ && kept_->sides.empty()) kept_->sides.push_back({.about = {}, .results = copied(results)});
}

}  // namespace elinvar
