#include "tools/launch/elastic_main.h"

#include <CLI/CLI.hpp>

#include "tools/cli/program_beside.h"
#include "tools/launch/commands.h"

namespace elinvar {

int elastic_main(int argc, char** argv) {
  constexpr AddCommand kCommands[] = {add_run, add_resume, add_join, add_ctl, add_eval, add_coordinate};
  CLI::App program("Trains with workers that come and go; no bit depends on them.", program_name());
  return run_subcommand(program, kCommands, argc, argv);
}

}  // namespace elinvar
