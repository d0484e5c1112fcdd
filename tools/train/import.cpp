// `train import`: begins a run with weights of other programs (models/published.h).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/whole_state.h"
#include "models/published.h"
#include "models/published_config.h"
#include "models/published_family.h"
#include "nn/parameters.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/train/commands.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

struct ImportOptions {
  std::string weights, config, run_dir;
  std::vector<std::string> except;  // patterns of parameters that keep their initial values
  std::vector<std::string> overrides;
};

int import_weights(const ImportOptions& command) {
  const fs::path directory = command.run_dir;
  check(!fs::exists(directory) || fs::is_empty(directory), "{} is not empty; choose another run directory",
        directory.string());
  TrainingSetup setup(read_config(command.config, command.overrides));
  check_published_settings(setup.config.model, setup.network->parameters.whole_state(), command.weights);
  const std::string classes = weight_of_classes(setup.network->parameters.whole_state());
  const bool new_classes =
      std::ranges::any_of(command.except, [&](const std::string& pattern) { return name_matches(pattern, classes); });
  if (!new_classes) check_order_of_classes(setup.data->class_names(), command.weights);
  load_published(setup.config.model, *setup.network, read_published(setup.config.model, command.weights),
                 command.except);
  if (setup.average) setup.average->parameters.load(setup.network->parameters.state());
  const StateDict state = whole_state(setup.state(), 0, std::nullopt);
  make_directories(directory);
  CheckpointStore store(directory / "checkpoints");
  store.prepare();
  store.write(0, state, digest(state));
  replace_file(directory / "config.toml", to_toml(setup.config));
  fmt::print("{}: {} parameters of {}\n", directory.string(), setup.network->parameters.count(), command.weights);
  fmt::print("train eval {0} scores them, train resume {0} trains them\n", directory.string());
  return 0;
}

}  // namespace

Command add_import(CLI::App& program) {
  const auto options = std::make_shared<ImportOptions>();
  CLI::App* app = program.add_subcommand("import", "begin a run with weights from elsewhere");
  app->add_option(
         "weights", options->weights,
         "model.safetensors as torchvision's and Hugging Face's models save it, the index of several, or a folder; of "
         "ELECTRA the discriminator's folder, with the generator's in it")
      ->required();
  app->add_option("config", options->config, "the configuration, a .toml file")->required();
  app->add_option("run_dir", options->run_dir, "the run directory to make")->required();
  app->add_option(
         "--except", options->except,
         "parameters that stay as in a new network, as \"fc.*\" for another number of classes; may be repeated")
      ->allow_extra_args(false);
  app->add_option("--set", options->overrides,
                  "table.key=value: overrides one key of the configuration; may be repeated")
      ->allow_extra_args(false);
  return {app, [options] { return import_weights(*options); }};
}

}  // namespace elinvar
