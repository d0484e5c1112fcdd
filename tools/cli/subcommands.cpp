#include "tools/cli/subcommands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "tools/cli/main_program.h"
#include "tools/cli/standard_streams.h"

namespace elinvar {

int run_subcommand(CLI::App& program, std::span<const AddCommand> commands, int argc, char** argv) {
  return main_program(program.get_name().c_str(), [&] {
    program.require_subcommand(1);
    std::vector<Command> added;
    for (const AddCommand add : commands) added.push_back(add(program));
    try {
      program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      const std::string first = argc > 1 ? argv[1] : "-";
      std::vector<std::string> names;
      for (const Command& command : added)
        if (!command.app->get_group().empty()) names.push_back(command.app->get_name());
      if (first.starts_with('-') || std::find(names.begin(), names.end(), first) != names.end())
        return program.exit(error) == 0 ? 0 : 2;
      say(stderr, "{0}: there is no command '{1}'; there are {2}. {0} --help tells what they do\n", program.get_name(),
          first, fmt::join(names, ", "));
      return 2;
    }
    for (const Command& command : added)
      if (*command.app) return command.run();
    return 2;
  });
}

}  // namespace elinvar
