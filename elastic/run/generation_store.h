#pragma once
// The records of generations in a run directory: generations/<g>.json (PROTOCOL.md).
#include <filesystem>
#include <optional>

#include "elastic/step/generation.h"

namespace elinvar {

class GenerationStore {
 public:
  explicit GenerationStore(std::filesystem::path run_directory);
  // Returns once the record would survive a power cut; false, and nothing has changed, if there is one of this number.
  bool create(const Generation& generation);
  // None if there is no record; both throw Failure if one cannot be read.
  std::optional<Generation> newest() const;
  std::optional<Generation> read(int64_t number) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace elinvar
