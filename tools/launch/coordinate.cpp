// `coordinate`: continues in place of a coordinator that is gone (tools/training/take_over.cpp). Workers start it.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/cli/standard_streams.h"
#include "tools/launch/commands.h"
#include "tools/launch/self_process.h"

namespace elinvar {

Command add_coordinate(CLI::App& program) {
  const auto options = std::make_shared<TakeoverOptions>();
  CLI::App* app = program.add_subcommand("coordinate", "go on in the place of a run's coordinator that is gone");
  app->group("");  // hidden from --help
  app->add_option("run_dir", options->run_dir)->required();
  app->add_option("--term", options->term)->required();
  app->add_option("--listen", options->listen);
  app->add_option("--advertise", options->advertise);
  app->add_option("--key", options->key);
  return {app, [options] {
            outlive_readers();
            options->command_line = own_command_line();
            options->start_worker = start_worker;
            return take_over(*options);
          }};
}

}  // namespace elinvar
