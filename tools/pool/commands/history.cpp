// `pool cancel` and `pool history`.
#include <CLI/CLI.hpp>

#include "tensor/base/check.h"
#include "tools/pool/commands/commands.h"
#include "tools/pool/page/view.h"
#include "tools/pool/profiling/prediction_error.h"
#include "tools/pool/sim/measure.h"
#include "tools/repro/output.h"

namespace elinvar::pool {
namespace {

struct HistoryOptions {
  std::string directory = "pool";
  Id job = 0;
  int64_t lines = 100;
  bool json = false, table = false;
};

}  // namespace

Command add_cancel(CLI::App& pool) {
  auto o = std::make_shared<HistoryOptions>();
  CLI::App* app = pool.add_subcommand("cancel", "stop a job for good, with a checkpoint; 1: it is over already");
  app->add_option("job", o->job, "its number")->required();
  add_directory(*app, o->directory);
  return {app, [o] {
            Store store = Store::open_existing(o->directory);
            std::optional<JobRecord> job;
            store.transaction([&] {
              job = store.jobs.find(o->job);
              check(job.has_value(), "there is no job {}", o->job);
              if (job->over()) return;
              store.jobs.ask_cancel(o->job);
              store.log.add(wall_clock(), o->job, "cancel", "asked for by its user");
            });
            fmt::print("job {} {}\n", o->job,
                       job->over() ? fmt::format("is {}", name_of(job->state)) : "will be stopped");
            return job->over() ? 1 : 0;
          }};
}

Command add_history(CLI::App& pool) {
  auto o = std::make_shared<HistoryOptions>();
  CLI::App* app = pool.add_subcommand("history", "what was decided and what happened, with reasons");
  app->add_option("job", o->job, "its number (default: of all)");
  add_directory(*app, o->directory);
  app->add_option("--lines", o->lines, "the last ones")
      ->check(CLI::Range(1, 1000000).description(""))
      ->capture_default_str();
  app->add_flag("--json", o->json, "the answer as JSON");
  app->add_flag("--table", o->table, "instead what was learned of jobs, speeds and costs: a table for `pool sim`");
  return {app, [o] {
            const Store store = Store::open_existing(o->directory);
            if (o->table) {
              print_json(table_of(learned(store)));
              return 0;
            }
            check(o->job == 0 || store.jobs.find(o->job).has_value(), "there is no job {}", o->job);
            const auto lines = log_view(store.log.last(o->job, o->lines));
            const std::vector<std::vector<Measurement>> of_job = {store.measurements.of(o->job)};
            const PredictionErrors errors = prediction_errors(o->job == 0 ? store.measurements.all() : of_job);
            if (o->json) print_json({{"log", lines}, {"prediction_errors", json_of(errors)}});
            else fmt::print("{}{}\n", log_text(lines), text_of(errors));
            return 0;
          }};
}

}  // namespace elinvar::pool
