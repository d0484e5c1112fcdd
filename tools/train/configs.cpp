// `train configs`: lists the ready configurations, and copies one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/spelling.h"
#include "tools/config/ready_configs.h"
#include "tools/train/commands.h"

namespace elinvar {
namespace {

struct ConfigsOptions {
  std::string name;    // empty: all are listed
  std::string out;     // empty: NAME.toml in the current folder
  bool force = false;  // replaces the file if it exists
};

void list(const std::vector<ReadyConfig>& configs) {
  size_t width = 0;
  for (const ReadyConfig& config : configs) width = std::max(width, config.name.size());
  for (const ReadyConfig& config : configs) fmt::print("{:<{}}  {}\n", config.name, width, config.description);
}

void copy(const ReadyConfig& config, const ConfigsOptions& options) {
  std::filesystem::path out = options.out.empty() ? config.name + ".toml" : options.out;
  if (std::filesystem::is_directory(out)) out /= config.name + ".toml";
  const std::string text = read_file(config.file);
  if (options.force) replace_file(out, text);
  else check(create_file(out, text), "{} exists; choose another name, or --force", out.string());
  fmt::print("{0}: train check {0} says what it would do, train run {0} trains\n", out.string());
}

int configs(const ConfigsOptions& options) {
  const std::vector<ReadyConfig> all = ready_configs();
  if (all.empty())
    fail("the ready configurations are not installed: share/elinvar/configs beside the programs is absent");
  if (options.name.empty()) {
    list(all);
    return 0;
  }
  const std::optional<ReadyConfig> chosen = ready_config(options.name);
  std::vector<std::string> names;
  for (const ReadyConfig& config : all) names.push_back(config.name);
  check(chosen.has_value(), "there is no ready configuration '{}'{}", options.name, spelling_hint(options.name, names));
  copy(*chosen, options);
  return 0;
}

}  // namespace

Command add_configs(CLI::App& program) {
  const auto options = std::make_shared<ConfigsOptions>();
  CLI::App* app = program.add_subcommand("configs", "ready configurations: list them, or copy one");
  app->add_option("name", options->name, "the one to copy (default: all are listed)");
  app->add_option("out", options->out, "the file to write (default: NAME.toml)");
  app->add_flag("--force", options->force, "replace the file if it exists");
  return {app, [options] { return configs(*options); }};
}

}  // namespace elinvar
