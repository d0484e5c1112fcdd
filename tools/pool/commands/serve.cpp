// `pool serve`: the daemon. One process with one loop (tools/pool/daemon/scheduler.h), and a thread for the page. It
// may be killed and restarted at any moment; jobs continue meanwhile.
#include <CLI/CLI.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/cli/program_beside.h"
#include "tools/cli/standard_streams.h"
#include "tools/pool/commands/commands.h"
#include "tools/pool/daemon/live_world.h"
#include "tools/pool/daemon/settings.h"
#include "tools/pool/page/page.h"
#include "tools/pool/policies/advisor.h"
#include "tools/pool/policies/worker_split.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/profiling/job_models.h"
#include "tools/training/interrupt.h"

namespace elinvar::pool {
namespace {

namespace fs = std::filesystem;

constexpr auto kTurnEvery = std::chrono::milliseconds(500);
constexpr auto kTellAgain = std::chrono::minutes(1);  // between reports of an error that persists

struct ServeOptions {
  std::string directory = "pool", policy;
  bool until_done = false;
};

int serve(const ServeOptions& o) {
  outlive_readers();
  Store store(o.directory);
  const fs::path directory = store.directory();
  std::optional<DaemonLock> lock = DaemonLock::take(directory);
  check(lock.has_value(), "another daemon serves {}", directory.string());
  const fs::path file = directory / "pool.toml";
  const Settings settings = parse_settings(fs::exists(file) ? read_file(file) : "", file.string());
  const PoolSettings& s = settings.pool;
  const std::string train = s.train.empty() ? program_beside("train").string() : s.train;
  check(fs::is_regular_file(train), "there is no program {}; [pool] train names it", train);

  std::vector<NamedSource> sources;
  bool elsewhere = false;
  for (const SourceOptions& options : settings.sources) {
    sources.push_back({options.name, make_source(options, train)});
    elsewhere = elsewhere || !sources.back().source->this_host();
  }
  const NamedPolicy& policy = policy_of(o.policy.empty() ? s.policy : o.policy);
  LiveWorld world(store, train, elsewhere);
  JobModels models(store);
  Scheduler scheduler(store, world, std::move(sources),
                      {.policy =
                           [&](const Pool& pool) {
                             Plan plan = with_worker_split(pool, policy.plan(pool), s.trials);
                             return s.trials ? with_advice(pool, std::move(plan)) : plan;
                           },
                       .speed = [&](const JobRecord& job,
                                    const std::vector<Measurement>& measured) { return models.of(job, measured); },
                       .overheads = [&](const JobRecord& job) { return models.overheads(job); },
                       .train = train,
                       .advertise = elsewhere ? s.advertise : "",
                       .grace = s.grace,
                       .replan = s.replan,
                       .idle = s.idle,
                       .failures = s.failures,
                       .patience = s.patience,
                       .turn = s.turn,
                       .horizon = s.horizon});
  std::optional<Page> page;
  if (s.page >= 0) page.emplace(directory, s.page);
  say(stdout, "pool {}: policy {}{}\n", directory.string(), policy.name, page ? ", page " + page->url() : "");
  store.log.add(wall_clock(), 0, "daemon", fmt::format("serves with policy {}", policy.name));

  std::mutex mutex;
  std::condition_variable woken;
  bool over = false;
  std::string trouble;
  auto told = std::chrono::steady_clock::now();
  const Interrupt interrupt([&] {
    const std::lock_guard lock_here(mutex);
    over = true;
    woken.notify_all();
  });
  for (std::unique_lock wait(mutex); !over;) {
    wait.unlock();
    check(lock->keep(), "another daemon serves {}, since {} was removed", directory.string(),
          (directory / "lock").string());
    try {
      if (!store.in_place()) {
        store.put_back();
        store.log.add(wall_clock(), 0, "daemon", "pool.db was removed, and is there again");
      }
      scheduler.tick(wall_clock());
      trouble.clear();
      if (o.until_done && store.jobs.open().empty() && store.processes.present().empty()) break;
    } catch (const StoreDamage&) {
      throw;
    } catch (const std::exception& error) {
      // For example a full disk or a locked database. It may pass, and transactions leave nothing half done.
      store.check_undamaged(error);
      const auto now = std::chrono::steady_clock::now();
      if (std::exchange(trouble, error.what()) != error.what() || now - told > kTellAgain) {
        say(stderr, "pool {}: {}\n", directory.string(), error.what());
        told = now;
      }
    }
    wait.lock();
    woken.wait_for(wait, kTurnEvery, [&] { return over; });
  }
  scheduler.end(wall_clock());
  try {
    store.log.add(wall_clock(), 0, "daemon", "ends; jobs go on");
  } catch (const std::exception& error) {  // the log line is not essential
    say(stderr, "pool {}: {}\n", directory.string(), error.what());
  }
  return 0;
}

}  // namespace

Command add_serve(CLI::App& pool) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* app = pool.add_subcommand("serve", "share machines among the jobs of a pool, until it is interrupted");
  app->footer(
      "DIR/pool.toml says where machines come from (tools/docs/pool.md); without it: this host.\n"
      "Jobs go on when the daemon ends or dies, and the next one takes them up.");
  add_directory(*app, o->directory);
  app->add_option("--policy", o->policy, "who gets what; the default is [pool] policy");
  app->add_flag("--until-done", o->until_done, "end when no job is open");
  return {app, [o] { return serve(*o); }};
}

}  // namespace elinvar::pool
