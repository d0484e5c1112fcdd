#pragma once
// The records of generations in a run directory: generations/<g>.json (PROTOCOL.md).
#include <filesystem>
#include <optional>

#include "elastic/step/generation.h"

namespace elinvar {

class GenerationStore {
 public:
  explicit GenerationStore(std::filesystem::path run_directory);
  // Returns true once the record would survive a power cut. Returns false and changes nothing if the number has a
  // record.
  bool create(const Generation& generation);
  // Returns null if there is no record. Both functions throw Failure if a record cannot be read.
  std::optional<Generation> newest() const;
  std::optional<Generation> read(int64_t number) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace elinvar
