// `pool list` and `pool status`: the jobs of a pool, or one of them.
#include <CLI/CLI.hpp>

#include "tensor/base/check.h"
#include "tools/pool/commands/commands.h"
#include "tools/pool/page/view.h"
#include "tools/repro/output.h"

namespace elinvar::pool {
namespace {

struct ListOptions {
  std::string directory = "pool";
  Id job = 0;
  bool all = false, json = false;
};

}  // namespace

Command add_list(CLI::App& pool) {
  auto o = std::make_shared<ListOptions>();
  CLI::App* app = pool.add_subcommand("list", "the jobs that are open, and those of the last day");
  add_directory(*app, o->directory);
  app->add_flag("--all", o->all, "all that there ever were");
  app->add_flag("--json", o->json, "the answer as JSON, with slots, workers, progress and the log");
  return {app, [o] {
            const Store store = Store::open_existing(o->directory);
            const auto view = pool_view(store, wall_clock(), o->all ? 1e12 : 86400);
            if (o->json) print_json(view);
            else fmt::print("{}", jobs_table(view));
            return 0;
          }};
}

Command add_status(CLI::App& pool) {
  auto o = std::make_shared<ListOptions>();
  CLI::App* app = pool.add_subcommand("status", "one job: where it is, how fast, and why");
  app->add_option("job", o->job, "its number")->required();
  add_directory(*app, o->directory);
  app->add_flag("--json", o->json, "the answer as JSON");
  return {app, [o] {
            const Store store = Store::open_existing(o->directory);
            const std::optional<JobRecord> job = store.jobs.find(o->job);
            check(job.has_value(), "there is no job {}", o->job);
            const auto view = job_view(store, *job, wall_clock());
            if (o->json) print_json(view);
            else fmt::print("{}", job_text(view));
            return 0;
          }};
}

}  // namespace elinvar::pool
