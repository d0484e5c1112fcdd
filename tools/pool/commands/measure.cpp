// `pool measure`: measures speeds and costs of jobs on this host and writes them as a table for `pool sim`.
#include "tools/pool/sim/measure.h"

#include <CLI/CLI.hpp>

#include "tools/cli/output_file.h"
#include "tools/pool/commands/commands.h"
#include "tools/repro/output.h"

namespace elinvar::pool {

Command add_measure(CLI::App& pool) {
  struct Options {
    std::vector<std::string> configs;
    std::string to;
    MeasureOptions measure;
  };
  auto o = std::make_shared<Options>();
  CLI::App* app =
      pool.add_subcommand("measure", "speeds of jobs on this host and what changes cost them: a table for `pool sim`");
  app->footer("Takes about a minute a configuration. Nothing else should run meanwhile.");
  app->add_option("configs", o->configs, "configurations, .toml files")->required()->check(CLI::ExistingFile);
  app->add_option("--table", o->to, "where to write the table (default: stdout)");
  app->add_option("--slots", o->measure.slots, "1, 2, 4 ... so many workers")
      ->capture_default_str()
      ->check(CLI::Range(2, 1024));
  app->add_option("--threads", o->measure.threads, "of each")->capture_default_str()->check(CLI::Range(1, 1024));
  app->add_option("--seconds", o->measure.seconds, "at each size, at least")->capture_default_str()->check(positive);
  app->add_option("--repeat", o->measure.repeat, "how often each change is made")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app->add_option("--set", o->measure.overrides, "table.key=value: overrides one key of the configurations")
      ->take_all()
      ->allow_extra_args(false);
  return {app, [o] {
            if (!o->to.empty()) check_output(o->to);
            std::vector<Measured> measured;
            for (const std::string& config : o->configs) {
              fmt::print(stderr, "{} ...\n", config);
              measured.push_back(measure(config, o->measure));
            }
            const nlohmann::ordered_json table = table_of(measured);
            if (o->to.empty()) print_json(table);
            else write_output(o->to, table.dump(2) + "\n");
            return 0;
          }};
}

}  // namespace elinvar::pool
