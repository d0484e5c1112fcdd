// `train keygen`: makes the key shared by all processes of a job.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "comm/job_key.h"
#include "tensor/base/check.h"
#include "tools/train/commands.h"

namespace elinvar {

Command add_keygen(CLI::App& program) {
  const auto folder = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("keygen", "make the key that all processes of a job share");
  app->add_option("folder", *folder, "where to put it; made if absent")->required();
  return {app, [folder] {
            const std::filesystem::path key = std::filesystem::path(*folder) / "job.key";
            std::error_code error;
            check(!std::filesystem::exists(key, error), "{} exists; choose another folder", key.string());
            JobKey::make().save(*folder);
            fmt::print("{}/job.key: give it to every process of the job, and to nobody else\n", *folder);
            return 0;
          }};
}

}  // namespace elinvar
