#pragma once
// The key of a job: one CURVE key pair that all its processes share. Connections without it are refused before any
// message is read. It is stored in DIR/job.key, readable by its owner only.
#include <filesystem>
#include <string>

namespace elinvar {

struct JobKey {
  std::string public_key, secret_key;  // Z85, 40 characters each

  static JobKey make();
  // Throws Failure if the file is absent or damaged, UsageError if anyone but its owner may read it.
  static JobKey load(const std::filesystem::path& folder);
  // Creates the folder if needed. Throws Failure if it already has a key.
  void save(const std::filesystem::path& folder) const;
};

}  // namespace elinvar
