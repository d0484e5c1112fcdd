#include "elastic/protocol/last_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace elinvar {

LastCheckpoint::LastCheckpoint(JobState& job, const FactsOnFile& facts) : job_(job), facts_(facts) { restart(); }

void LastCheckpoint::restart() { saved_ = job_.first_step > 0 ? job_.first_step : -1; }

bool LastCheckpoint::whole() const {
  return facts_.last_told() && saved_ >= job_.steps && facts_.on_file() >= job_.steps - 1;
}

// Returns the step whose state must be on disk before the run may end; nothing if it is not known yet.
std::optional<int64_t> LastCheckpoint::due() const {
  if (job_.current && job_.current->stop) return std::min(job_.current->first_step, job_.steps);
  return facts_.last_told() ? std::optional(job_.steps) : std::nullopt;
}

bool LastCheckpoint::stops_at(int64_t step) const {
  return job_.current && job_.current->stop && step == std::min(job_.current->first_step, job_.steps);
}

void LastCheckpoint::committed(int64_t step) {
  saved_ = std::max(saved_, step);
  job_.world.event("checkpoint", {{"step", step}});
}

void LastCheckpoint::failed(int64_t step, const std::string& reason, Seconds now) {
  if (job_.phase == JobState::Phase::ended || again_at_ || (step < job_.steps && step != due())) return;
  if (++failures_ >= job_.options.save_attempts)
    return job_.end("failed", fmt::format("the last checkpoint, of step {}, cannot be written: {}", step, reason));
  again_at_ = now + job_.options.save_again;
}

// A fence makes members write all parts again, because a worker that has left may have held one.
FenceReason LastCheckpoint::retry(Seconds now) {
  if (again_at_ && now >= *again_at_) {
    again_at_.reset();
    return "the last checkpoint could not be written";
  }
  if (!due()) due_since_.reset();
  else if (!due_since_) due_since_ = now;
  else if (now - *due_since_ > job_.options.save_timeout)
    job_.end("failed", fmt::format("the last checkpoint, of step {}, is not written after {:g} s", *due(),
                                   job_.options.save_timeout));
  return std::nullopt;
}

}  // namespace elinvar
