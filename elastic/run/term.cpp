#include "elastic/run/term.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "elastic/run/record.h"
#include "tensor/base/check.h"
#include "tensor/base/reason.h"

namespace elinvar {

namespace fs = std::filesystem;

namespace {
fs::path directory_in(const fs::path& run_directory) { return run_directory / "coordinators"; }
fs::path beat_file(const fs::path& directory, int64_t term) { return directory / fmt::format("{}.beat", term); }
}  // namespace

std::optional<Term> newest_term(const fs::path& run_directory) {
  // A coordinator writes its record before it counts, so a count without a record means that the record was lost.
  const fs::path directory = directory_in(run_directory);
  const int64_t number = std::max(newest_record(directory), newest_record(directory, ".beat"));
  if (number == 0) return std::nullopt;
  try {
    const nlohmann::json json = read_record(directory, number);
    return Term{.number = number,
                .run = json.at("run").get<uint64_t>(),
                .peer = json.at("peer").get<PeerId>(),
                .endpoint = json.at("endpoint").get<std::string>(),
                .job = json.at("job")};
  } catch (const nlohmann::json::exception& error) {
    refuse_record(directory, number, fmt::format("is damaged: {}", reason_of(error)));
  }
}

// Writes in place: a concurrent reader sees some other number, which is all it needs. The file is not truncated first,
// because file systems would then go to the disk. It is closed so that other hosts on a network file system see it.
void HeldTerm::beat() {
  const std::string count = fmt::format("{}\n", ++beats_);
  try {
    File::modify(beat_file_).overwrite(0, count.data(), count.size());
  } catch (const Failure&) {  // files that must reach the disk report the error themselves
  }
}

int64_t beats_of(const fs::path& run_directory, int64_t term) {
  int64_t beats = 0;
  std::ifstream(beat_file(directory_in(run_directory), term)) >> beats;
  return beats;
}

HeldTerm::HeldTerm(const fs::path& run_directory, const Term& term)
    : run_directory_(run_directory),
      directory_(directory_in(run_directory)),
      number_(term.number),
      beat_file_(beat_file(directory_, number_)),
      next_(directory_ / fmt::format("{}.json", number_ + 1)) {
  const nlohmann::json record = {
      {"run", term.run}, {"peer", term.peer}, {"endpoint", term.endpoint}, {"job", *term.job}};
  if (!create_record(directory_, number_, record))
    fail("another coordinator has just taken over {}", run_directory.string());
  record_.emplace(File::open(directory_ / fmt::format("{}.json", number_)));
  (void)File::modify(beat_file_);
}

HeldTerm::Standing HeldTerm::standing() const {
  if (!record_->in_place()) return Standing::displaced;
  return fs::exists(next_) ? Standing::superseded : Standing::held;
}

bool HeldTerm::newest() const {
  const Standing now = standing();
  if (now == Standing::displaced)
    fail(
        "{} was deleted, moved or replaced while the run was in it; nothing more is saved there. If it still exists "
        "elsewhere, resume it there",
        run_directory_.string());
  return now == Standing::held;
}

}  // namespace elinvar
