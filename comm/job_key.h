#pragma once
// The key of a job: one CURVE pair, shared by all of its processes. Who holds it is of the job; anyone else is turned
// away before a message of theirs is looked at. It is kept in DIR/job.key, readable by its owner alone.
#include <filesystem>
#include <string>

namespace elinvar {

struct JobKey {
  std::string public_key, secret_key;  // Z85, 40 characters each

  static JobKey make();
  // Failure if it is absent or damaged; UsageError if others than its owner may read it.
  static JobKey load(const std::filesystem::path& folder);
  void save(const std::filesystem::path& folder) const;  // makes the folder; Failure if a key is there already
};

}  // namespace elinvar
