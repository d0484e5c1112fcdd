// The coordinator: the last checkpoint, and the end of a run.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

// Every step is on file, and the last state saved.
bool Coordinator::whole() const {
  return final_ && final_checkpoint_ >= options_.steps && on_file_ >= options_.steps - 1;
}

// The step whose state must be on the disk before the run may end; none yet.
std::optional<int64_t> Coordinator::last_checkpoint() const {
  if (current_ && current_->stop) return std::min(current_->first_step, options_.steps);
  return final_ ? std::optional(options_.steps) : std::nullopt;
}

void Coordinator::checkpoint_committed(int64_t step, Seconds now) {
  final_checkpoint_ = std::max(final_checkpoint_, step);
  world_.event("checkpoint", {{"step", step}});
  if (phase_ == Phase::ended) return;
  if (whole()) end("finished", "");
  else if (current_ && current_->stop && step == std::min(current_->first_step, options_.steps))
    end("stopped", wishes_.stop);
  tick(now);
}

void Coordinator::checkpoint_failed(int64_t step, const std::string& reason, Seconds now) {
  if (phase_ == Phase::ended || save_again_at_ || (step < options_.steps && step != last_checkpoint())) return;
  if (++save_failures_ >= options_.save_attempts)
    return end("failed", fmt::format("the last checkpoint, of step {}, cannot be written: {}", step, reason));
  save_again_at_ = now + options_.save_again;
}

// All parts: who has left may have had one of them.
void Coordinator::save_again(Seconds now) {
  if (save_again_at_ && now >= *save_again_at_) {
    save_again_at_.reset();
    return fence("the last checkpoint could not be written", now);
  }
  if (!last_checkpoint()) last_saved_from_.reset();
  else if (!last_saved_from_) last_saved_from_ = now;
  else if (now - *last_saved_from_ > options_.save_timeout)
    end("failed", fmt::format("the last checkpoint, of step {}, is not written after {:g} s", *last_checkpoint(),
                              options_.save_timeout));
}

void Coordinator::end(const std::string& what, const std::string& reason) {
  phase_ = Phase::ended;
  ending_ = Ending{what, reason};
  world_.event("end", {{"what", what}, {"reason", reason}});
  if (what == "superseded") return;
  for (const auto& [peer, w] : workers_) send(peer, messages::Release{.what = what, .reason = reason});
}

// Does not call world_, which may be what has failed.
void Coordinator::fail(const std::string& reason) {
  phase_ = Phase::ended;
  ending_ = Ending{"failed", reason};
  for (const auto& [peer, w] : workers_) send(peer, messages::Release{.what = "failed", .reason = reason});
}

void Coordinator::superseded() {
  if (phase_ != Phase::ended) end("superseded", "another coordinator has taken over; this one steps down");
}

}  // namespace elinvar
