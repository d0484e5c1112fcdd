#include "elastic/tenure.h"

#include <fstream>

#include "elastic/record.h"
#include "tensor/check.h"

namespace elinvar {

namespace fs = std::filesystem;

namespace {
fs::path directory_in(const fs::path& run_directory) { return run_directory / "coordinators"; }
fs::path beat_file(const fs::path& directory, int64_t tenure) { return directory / fmt::format("{}.beat", tenure); }
}  // namespace

std::optional<Tenure> newest_tenure(const fs::path& run_directory) {
  const int64_t number = newest_record(directory_in(run_directory));
  if (number == 0) return std::nullopt;
  try {
    const nlohmann::json json = read_record(directory_in(run_directory), number);
    return Tenure{.number = number,
                  .run = json.at("run").get<uint64_t>(),
                  .peer = json.at("peer").get<PeerId>(),
                  .endpoint = json.at("endpoint").get<std::string>(),
                  .job = json.at("job")};
  } catch (const nlohmann::json::exception& error) {
    fail("malformed record of coordinator {} of {}: {}", number, run_directory.string(), error.what());
  }
}

// Written in place: a reader that comes in between sees another number, and that is all it asks for. The file is not
// cut off first, for which file systems would go to the disk; and it is closed, after which others see it, over a
// network, too.
void HeldTenure::beat() {
  const fs::path file = beat_file(directory_, number_);
  std::fstream beat(file, std::ios::in | std::ios::out);
  if (!beat) beat.open(file, std::ios::out);  // it was removed, or could not be made
  beat << ++beats_ << '\n';
}

int64_t beats_of(const fs::path& run_directory, int64_t tenure) {
  int64_t beats = 0;
  std::ifstream(beat_file(directory_in(run_directory), tenure)) >> beats;
  return beats;
}

HeldTenure::HeldTenure(const fs::path& run_directory, const Tenure& tenure)
    : directory_(directory_in(run_directory)), number_(tenure.number) {
  const nlohmann::json record = {
      {"run", tenure.run}, {"peer", tenure.peer}, {"endpoint", tenure.endpoint}, {"job", tenure.job}};
  if (!create_record(directory_, number_, record))
    fail("another coordinator has just taken over {}", run_directory.string());
  const std::ofstream nothing_counted(beat_file(directory_, number_));
}

bool HeldTenure::newest() const { return !fs::exists(directory_ / fmt::format("{}.json", number_ + 1)); }

}  // namespace elinvar
