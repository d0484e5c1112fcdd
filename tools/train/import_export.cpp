// `train import` and `train export`: weights from elsewhere, and back (models/published.h).
#include <filesystem>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/whole_state.h"
#include "models/published.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/safetensors.h"
#include "tools/train/commands.h"
#include "tools/training/job.h"

namespace elinvar {

namespace fs = std::filesystem;

int import_weights(const ImportCommand& command) {
  const fs::path directory = command.run_dir;
  check(!fs::exists(directory) || fs::is_empty(directory), "{} is not empty; choose another run directory",
        directory.string());
  Job job(read_config(command.config, command.overrides));
  check_published_settings(job.config.model, command.weights);
  load_published(job.config.model, *job.network, read_published(command.weights), command.except);
  if (job.average) job.average->parameters.load(job.network->parameters.state());
  const StateDict state = whole_state(job.state(), 0, std::nullopt);
  make_directories(directory);
  CheckpointStore store(directory / "checkpoints");
  store.prepare();
  store.write(0, state, digest(state));
  replace_file(directory / "config.toml", to_toml(job.config));
  fmt::print("{}: {} parameters of {}\n", directory.string(), job.network->parameters.count(), command.weights);
  fmt::print("train eval {0} scores them, train run {0}/config.toml --run-dir {0} --resume trains them\n",
             directory.string());
  return 0;
}

int export_weights(const ExportCommand& command) {
  const fs::path directory = command.run_dir;
  Job job(read_run_config(directory));
  const int64_t step = job.load_network(directory);
  write_safetensors(command.out, published(job.config.model, job.network->parameters.state()), {{"format", "pt"}});
  fmt::print("{}: {} parameters after step {}\n", command.out, job.network->parameters.count(), step);
  return 0;
}

}  // namespace elinvar
