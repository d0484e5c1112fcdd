// `pool submit`: adds a job to the store; the daemon starts it when there is room.
#include "tools/pool/store/submission.h"

#include <CLI/CLI.hpp>
#include <cmath>

#include "tensor/base/check.h"
#include "tools/pool/commands/commands.h"
#include "tools/pool/store/store.h"
#include "tools/repro/output.h"

namespace elinvar::pool {

void add_directory(CLI::App& command, std::string& directory) {
  command.add_option("--dir", directory, "where the pool is kept")
      ->check([](const std::string& text) { return text.empty() ? "names no folder" : ""; })
      ->capture_default_str();
}

std::string positive(const std::string& text) {
  double number = 0;
  const bool is_number = CLI::detail::lexical_cast(text, number);
  return is_number && std::isfinite(number) && number > 0 ? "" : fmt::format("must be a number above 0, got {}", text);
}

Command add_submit(CLI::App& pool) {
  struct Options {
    Submission job;
    std::string config, directory = "pool", deadline;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* app = pool.add_subcommand("submit", "add a job, to be trained when there is room");
  app->add_option("config", o->config, "its configuration, a .toml file (tools/CONFIG.md)")->required();
  add_directory(*app, o->directory);
  const CLI::Validator workers = CLI::Range(1, kMostWorkers).description("");
  app->add_option("--name", o->job.name, "what to call it (default: run.name)");
  app->add_option("--min", o->job.min_workers, "workers below which it waits")->check(workers)->capture_default_str();
  app->add_option("--max", o->job.max_workers, "workers that it can use (default: run.virtual_ranks)")->check(workers);
  app->add_option("--size", o->job.fixed_workers, "workers under a policy of fixed sizes (default: --max)")
      ->check(workers);
  app->add_option("--priority", o->job.priority, "higher goes first")
      ->check(CLI::Range(-1000, 1000).description(""))
      ->capture_default_str();
  app->add_option("--kind", o->job.kinds, "a kind of slot that it may have (default: any)")->allow_extra_args(false);
  app->add_option("--deadline", o->deadline, "when it should be done, from now: 90m, 2h, 1d");
  app->add_option("--set", o->job.overrides, "table.key=value: overrides one key of the configuration")
      ->take_all()
      ->allow_extra_args(false);
  app->add_flag("--json", o->json, "the answer as JSON");
  return {app, [o] {
            o->job.config = o->config;
            if (!o->deadline.empty()) o->job.deadline = parse_duration(o->deadline);
            const double now = wall_clock();
            const JobRecord job = checked(o->job, o->directory, now);
            Store store(o->directory);
            Id id = 0;
            store.transaction([&] {
              constexpr size_t kMostOpen = 10000;
              const size_t open = store.jobs.open().size();
              if (open >= kMostOpen) fail("{} jobs are open; a pool holds {}", open, kMostOpen);
              id = store.jobs.add(job);
              store.log.add(now, id, "submitted",
                            fmt::format("{}, {} to {} workers", job.name, job.min_workers, job.max_workers));
            });
            if (o->json) print_json({{"job", id}, {"name", job.name}});
            else fmt::print("job {}, {}\n", id, job.name);
            return 0;
          }};
}

}  // namespace elinvar::pool
