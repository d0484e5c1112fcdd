#include "tools/training/control.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "tensor/base/check.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;
using messages::Answer;

constexpr int kMostWorkers = 1024;  // as of train run --workers

// The answer to a request that must wait for workers to introduce themselves.
Answer still_starting() { return {.error = "the job is still starting", .starting = true}; }

std::vector<const Worker*> staying_in(const JobState& job) {
  std::vector<const Worker*> staying;
  for (const auto& [peer, worker] : job.workers)
    if (!worker.draining) staying.push_back(&worker);
  return staying;
}

// Returns whether workers would have to leave before the job knows all of them.
bool must_wait_to_shrink(int wanted, const JobState& job, const WorkerStarter& workers) {
  return job.phase == JobState::Phase::starting && workers.coming + static_cast<int>(staying_in(job).size()) > wanted;
}

// Starts workers, or asks the newest ones to leave, until `wanted` remain. Those that leave do not count, those that
// come do, so a request that is repeated starts nobody twice.
Answer scale(int wanted, Coordinator& coordinator, const WorkerStarter& workers, Seconds now) {
  if (wanted < 1) return {.error = "at least one worker"};
  if (wanted > kMostWorkers) return {.error = fmt::format("at most {} workers, got {}", kMostWorkers, wanted)};
  const JobState& job = coordinator.job();
  if (must_wait_to_shrink(wanted, job, workers)) return still_starting();
  std::vector<const Worker*> staying = staying_in(job);
  int there = workers.coming + static_cast<int>(staying.size());
  try {
    for (; there < wanted; ++there) workers.start();
  } catch (const Failure& failure) {  // the machine has no room for another process: the job goes on without it
    return {.error = failure.what()};
  }
  const int surplus = there - wanted, ended = std::min(std::max(surplus, 0), workers.coming);
  if (ended > 0) workers.end(ended);
  // Newcomers, which have no number yet, are newer than members.
  const auto is_newer = [](const Worker* a, const Worker* b) {
    return std::tuple(a->state != Worker::State::member, a->id) > std::tuple(b->state != Worker::State::member, b->id);
  };
  std::ranges::stable_sort(staying, is_newer);
  std::vector<PeerId> leaving;
  for (int i = 0; i < surplus - ended; ++i) leaving.push_back(staying[static_cast<size_t>(i)]->peer);
  for (const PeerId peer : leaving) coordinator.ask_to_leave(peer, now);
  return {};
}

// Returns the number of the worker that was started with `--name`, or 0 if there is none.
int worker_called(const std::string& name, const Coordinator& coordinator, Seconds now) {
  const Json status = coordinator.status(now);
  for (const Json& worker : status.at("workers"))
    if (worker.at("about").value("name", "") == name) return worker.at("id").get<int>();
  return 0;
}

// Entries that are not named stay as they are; dp=D says how many workers the job will have.
Answer arrange(const std::string& entries, Coordinator& coordinator, const Config& config, const WorkerStarter& workers,
               Seconds now) {
  if (entries == "auto") return {.error = coordinator.arrange_automatically(now)};
  const JobState& job = coordinator.job();
  Arrangement wanted = job.wanted ? job.wanted->arrangement : job.arrangement;
  int dp = 0;
  try {
    dp = read_arrangement(entries, wanted);
    check_arrangement(config, wanted);
    if (wanted.zero >= 3) check_can_be_absent(config, !job.segments.homes.empty());
  } catch (const UsageError& error) {
    return {.error = error.what()};
  }
  if (dp > 0 && must_wait_to_shrink(dp * wanted.replica(), job, workers)) return still_starting();
  if (std::string error = coordinator.arrange(wanted, now); !error.empty()) return {.error = std::move(error)};
  return dp > 0 ? scale(dp * wanted.replica(), coordinator, workers, now) : Answer{};
}

}  // namespace

Answer control(const messages::Ctl& asked, Coordinator& coordinator, const Config& config, const WorkerStarter& workers,
               const std::function<Json()>& status, Seconds now) {
  const std::string& what = asked.command;
  if (what == "status") return {.status = status()};
  // Only some of the members may have introduced themselves to this coordinator, and none would save the state.
  if (coordinator.job().phase == JobState::Phase::gathering) return still_starting();
  if (what == "scale") return scale(asked.number.value_or(0), coordinator, workers, now);
  if (what == "arrange") return arrange(asked.name.value_or(""), coordinator, config, workers, now);
  if (what == "drain") {
    const int worker = asked.name ? worker_called(*asked.name, coordinator, now) : asked.number.value_or(0);
    if (worker == 0 && asked.name) return {.error = "no member is called '" + *asked.name + "'"};
    return {.error = coordinator.drain(worker, now)};
  }
  if (what == "checkpoint") coordinator.ask_checkpoint(now);
  else if (what == "stop") coordinator.ask_stop("stopped by ctl", now);
  else return {.error = "unknown command"};
  return {};
}

}  // namespace elinvar
