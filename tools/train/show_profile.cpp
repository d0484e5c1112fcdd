// `train profile`: joins the profiles that workers wrote with `train run --profile`, and prints them as a table.
#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tools/train/commands.h"
#include "tools/training/profile_report.h"

namespace elinvar {
namespace {

struct ProfileOptions {
  std::string run_dir;
};

int show_profile(const ProfileOptions& command) {
  const std::filesystem::path directory = command.run_dir, path = directory / "profile.json";
  const nlohmann::ordered_json trace = joined_profile(directory);
  check(!trace.is_null(), "{} has no profile; make one with train run .. --profile", directory.string());
  write_profile(path, trace);
  fmt::print("{}\n{}\n", profile_table(trace), where_to_open(path));
  return 0;
}

}  // namespace

Command add_profile(CLI::App& program) {
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* app = program.add_subcommand("profile", "where the time of a run's steps went, after train run --profile");
  app->add_option("run_dir", options->run_dir, "a run directory")->required();
  return {app, [options] { return show_profile(*options); }};
}

}  // namespace elinvar
