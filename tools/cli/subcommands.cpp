#include "tools/cli/subcommands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "tensor/base/spelling.h"
#include "tools/cli/main_program.h"
#include "tools/cli/standard_streams.h"

namespace elinvar {
namespace {

// Returns the first option that no command has, or "".
std::string unknown_option(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) return "";
  for (const std::string& word : program.remaining(/*recurse=*/true))
    if (word.starts_with("--")) return word.substr(0, word.find('='));
  return "";
}

// Returns the option of the given command that is spelt like this one, or "".
std::string nearest_option(const CLI::App& program, const std::string& option) {
  std::vector<std::string> names;
  for (const CLI::App* app : program.get_subcommands())
    for (const CLI::Option* known : app->get_options())
      for (const std::string& name : known->get_lnames()) names.push_back("--" + name);
  return nearest_spelling(option, names);
}

}  // namespace

int end_of_parsing(const CLI::App& program, const CLI::ParseError& error, int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "-";
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App* app) { return !app->get_group().empty(); }))
    names.push_back(command->get_name());
  if (!first.starts_with('-') && std::ranges::find(names, first) == names.end()) {
    const std::string hint = spelling_hint(first, names);
    say(stderr, "{0}: there is no command '{1}'{2}{3} {0} --help tells what they do\n", program.get_name(), first, hint,
        hint.ends_with('?') ? "" : ".");
    return 2;
  }
  const std::string option = unknown_option(program, error), near = nearest_option(program, option);
  if (near.empty()) return program.exit(error) == 0 ? 0 : 2;
  say(stderr, "{0}: {1} has no option {2}; did you mean {3}? {0} {1} --help lists them\n", program.get_name(), first,
      option, near);
  return 2;
}

int run_subcommand(CLI::App& program, std::span<const AddCommand> commands, int argc, char** argv) {
  return main_program(program.get_name().c_str(), [&] {
    program.require_subcommand(1);
    std::vector<Command> added;
    for (const AddCommand add : commands) added.push_back(add(program));
    try {
      program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return end_of_parsing(program, error, argc, argv);
    }
    for (const Command& command : added)
      if (*command.app) return command.run();
    return 2;
  });
}

}  // namespace elinvar
