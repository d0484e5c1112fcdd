// The end of a coordinator's process (tools/training/job_process.h): it waits for its workers, finishes the files of
// the run, and says how to go on.
#include <limits>

#include "tensor/base/check.h"
#include "tools/cli/program_beside.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/job_process.h"
#include "tools/training/profile_report.h"

namespace elinvar {

namespace fs = std::filesystem;
using Clock = Transport::Clock;

std::string JobProcess::how_to_go_on() {
  const int64_t step = directory_ ? newest_checkpoint(std::numeric_limits<int64_t>::max()) : 0;
  if (step > 0)
    return fmt::format("{} resume {} goes on from the checkpoint of step {}", program_name(), path_.string(), step);
  if (!fs::exists(path_ / "config.toml")) return "nothing of it is kept yet";
  return fmt::format("it has no checkpoint yet, so {} resume {} begins it again", program_name(), path_.string());
}

void JobProcess::restore_files() {
  if (directory_->restore()) report_->tell("files of the run were deleted; they are written again");
  report_->restore();
}

// The workers and the files belong to another coordinator now.
int JobProcess::step_down() {
  if (report_) report_->stop_showing();
  const std::optional<Term> other = newest_term(path_);
  say(stderr, "{}: the coordinator at {} has taken over {}; this one steps down\n", program_name(),
      other ? other->endpoint : "?", path_.string());
  return 3;
}

void JobProcess::release(PeerId peer, const std::string& reason) {
  send(peer, {.payload = messages::Release{.what = "failed", .reason = reason}});
}

// Call it once all workers have written their profiles, or at the end.
void JobProcess::show_profile() {
  if (!std::exchange(profile_, std::nullopt)) return;
  const nlohmann::ordered_json trace = joined_profile(path_);
  if (trace.is_null()) return report_->tell("no step was profiled: the run has ended before them");
  write_profile(path_ / "profile.json", trace);
  report_->tell(fmt::format("\n{}\n{}", profile_table(trace), where_to_open(path_ / "profile.json")));
}

// Tells workers that arrive only now that no work is left.
void JobProcess::wait_for_workers() {
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (!local_.alive().empty() && Clock::now() < deadline) {
    const Arrival arrival = transport_->wait(Clock::now() + std::chrono::milliseconds(5));
    if (arrival.what == Arrival::What::message) turn_away(arrival.packet);
    (void)local_.ended();
  }
  local_.kill_all();
}

void JobProcess::turn_away(const Packet& newcomer) {
  std::string endpoint;
  try {
    const Message message = message_of(newcomer);
    if (const auto* ask = message.as<messages::Ask>()) endpoint = ask->endpoint;
    if (const auto* hello = message.as<messages::Hello>()) endpoint = hello->about.endpoint;
  } catch (const UsageError&) {  // the process is not part of this job
  }
  if (endpoint.empty()) return;
  transport_->connect(newcomer.sender, endpoint);
  send(newcomer.sender, {.payload = messages::Refused{.reason = "the run has ended"}});
}

int JobProcess::finish() {
  const Coordinator::Ending ending = *coordinator_->job().ending;
  if (ending.what == "superseded") return step_down();
  report_->stop_showing();
  fault_injector_.reset();
  wait_for_workers();
  if (superseded()) return step_down();
  if (ending.what == "failed") fail("{}", ending.reason);
  directory_->remove_unfinished();
  restore_files();
  show_profile();
  const bool finished = ending.what == "finished";
  const std::optional<Generation>& last = coordinator_->job().current;
  const int64_t step = finished ? directory_->facts().steps() : last ? last->first_step : directory_->start().step;
  const bool saved = finished || (step > 0 && newest_checkpoint(step) == step);
  report_->end(finished, step, now(), saved ? "" : how_to_go_on());
  return 0;
}

}  // namespace elinvar
