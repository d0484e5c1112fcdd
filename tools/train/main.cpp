// train: the command that trains, scores and samples. Exit codes: 0 done, 2 wrong usage or configuration, 3 a failure
// at run time.
#include <CLI/CLI.hpp>
#include <filesystem>

#include "tools/cli/program_beside.h"
#include "tools/launch/commands.h"
#include "tools/train/commands.h"

namespace {

constexpr elinvar::AddCommand kCommands[] = {
    elinvar::add_run,    elinvar::add_check,      elinvar::add_configs, elinvar::add_resume,
    elinvar::add_join,   elinvar::add_coordinate, elinvar::add_ctl,     elinvar::add_plot,
    elinvar::add_eval,   elinvar::add_predict,    elinvar::add_profile, elinvar::add_sample,
    elinvar::add_import, elinvar::add_export,     elinvar::add_devices, elinvar::add_keygen};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains neural networks whose bits do not depend on the machine.", "train");
  app.set_version_flag("--version", "train " ELINVAR_VERSION);
  std::error_code error;
  const auto documents = elinvar::program_beside("../share/doc/elinvar/README.md").lexically_normal();
  if (std::filesystem::exists(documents, error)) app.footer("Documents: " + documents.string());
  return elinvar::run_subcommand(app, kCommands, argc, argv);
}
