// `train export`: writes a run's weights for other programs, either as one file (models/published.h) or as a folder
// that Hugging Face's classes load (models/published_config.h).
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/labelled_text.h"
#include "data/text_pairs.h"
#include "models/published.h"
#include "models/published_config.h"
#include "tensor/base/check.h"
#include "tools/train/commands.h"
#include "tools/training/new_files.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};  // transformers require it

struct ExportOptions {
  std::string run_dir, out;
  bool force = false;  // replaces files that exist
};

// The text of tokenizer_config.json, which tells Hugging Face's transformers how to use tokenizer.json.
std::string tokenizer_config(const Dataset& data, int64_t context) {
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                   {"model_max_length", context},
                                   {"clean_up_tokenization_spaces", false}};
  const Vocabulary* vocabulary = data.vocabulary();
  if (!vocabulary) config["cls_token"] = kWholeText;
  else if (const std::optional<int32_t> end = vocabulary->end_of_text())
    for (const char* key : {"bos_token", "eos_token"}) config[key] = vocabulary->decode(*end);
  return config.dump(2) + "\n";
}

void add_folder(const TrainingSetup& setup, const fs::path& folder, NewFiles& files) {
  const Spec& model = setup.config.model;
  const StateDict network = setup.network->parameters.whole_state();
  const Vocabulary* vocabulary = setup.data->vocabulary();
  PublishedFacts facts{.class_names = setup.data->class_names()};
  if (vocabulary) facts.end_of_text = vocabulary->end_of_text();
  const std::string tokenizer = setup.data->tokenizer_json();
  if (vocabulary || !tokenizer.empty()) facts.context = setup.data->input_shape()[0];
  if (const std::optional<PairsForm> form = form_of_pairs(*setup.data)) {
    facts.end_of_text = form->end;
    facts.start = form->start;
  }
  if (network.contains("wpe.weight")) facts.context = network.at("wpe.weight").dim(0);
  std::map<std::string, std::string> configs;  // of each part; a network that has no class ends here, without folders
  for (const std::string& part : published_folders(model))
    configs.emplace(part, published_config(model, network, facts, part));
  if (vocabulary && tokenizer.empty())
    fmt::print(stderr, "{}: the vocabulary of these data has no tokenizer.json\n", folder.string());
  for (const auto& [part, config] : configs) {
    files.make_folder(folder / part);
    files.add_tensors(folder / part / "model.safetensors", published_for_class(model, network, part), kMetadata);
    if (tokenizer.empty()) continue;
    files.add_text(folder / part / "tokenizer.json", tokenizer);
    files.add_text(folder / part / "tokenizer_config.json", tokenizer_config(*setup.data, facts.context));
  }
  for (const auto& [part, config] : configs)  // last, because programs load no folder without one
    files.add_text(folder / part / "config.json", config);
}

int export_weights(const ExportOptions& command) {
  const fs::path directory = command.run_dir, named = command.out;
  const fs::path out = named.has_filename() ? named : named.parent_path();
  std::error_code unknown;
  const bool is_folder = command.out.ends_with('/') || fs::is_directory(out, unknown);
  const bool taken = is_folder ? fs::is_directory(out, unknown) && !fs::is_empty(out) : fs::exists(out, unknown);
  check(!taken || command.force, "{} exists; choose another name, or --force", command.out);
  TrainingSetup setup(read_run_config(directory));
  const int64_t step = setup.load_network(directory);
  NewFiles files;
  if (is_folder) add_folder(setup, out, files);
  else files.add_tensors(out, published(setup.config.model, setup.network->parameters.whole_state()), kMetadata);
  files.commit();
  fmt::print("{}: {} parameters after step {}\n", command.out, setup.network->parameters.count(), step);
  return 0;
}

}  // namespace

Command add_export(CLI::App& program) {
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* app = program.add_subcommand("export", "write the weights of a run's newest checkpoint for others");
  app->add_option("run_dir", options->run_dir, "a run directory")->required();
  app->add_option("out", options->out,
                  "what to write: DIR/ with config.json, model.safetensors and tokenizer, or a file model.safetensors")
      ->required();
  app->add_flag("--force", options->force, "replace files that exist");
  return {app, [options] { return export_weights(*options); }};
}

}  // namespace elinvar
