#include "elastic/run/generation_store.h"

#include <nlohmann/json.hpp>

#include "elastic/run/record.h"
#include "tensor/base/check.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;

GenerationStore::GenerationStore(fs::path run_directory) : directory_(std::move(run_directory) / "generations") {}

bool GenerationStore::create(const Generation& generation) {
  return create_record(directory_, generation.number, to_json(generation));
}

std::optional<Generation> GenerationStore::read(int64_t number) const {
  if (number <= 0) return std::nullopt;
  const Json record = read_record(directory_, number);
  try {
    Generation generation = generation_from(record);
    if (generation.number != number) fail("it is the record of generation {}", generation.number);
    return generation;
  } catch (const Failure& failure) {
    refuse_record(directory_, number, fmt::format("is damaged: {}", failure.what()));
  }
}

std::optional<Generation> GenerationStore::newest() const { return read(newest_record(directory_)); }

}  // namespace elinvar
