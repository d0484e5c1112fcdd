// `train profile`: what the workers of a run have left of `train run --profile`, joined and as a table.
#include "tensor/base/check.h"
#include "tools/train/commands.h"
#include "tools/training/profile_report.h"

namespace elinvar {

int show_profile(const ProfileCommand& command) {
  const std::filesystem::path directory = command.run_dir, path = directory / "profile.json";
  const nlohmann::ordered_json trace = joined_profile(directory);
  check(!trace.is_null(), "{} has no profile; make one with train run .. --profile", directory.string());
  write_profile(path, trace);
  fmt::print("{}\n{}\n", profile_table(trace), where_to_open(path));
  return 0;
}

}  // namespace elinvar
