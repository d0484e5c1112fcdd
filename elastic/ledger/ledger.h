#pragma once
// The ledger of a run: ledger.jsonl, one line a step of pure facts, so that equal runs have equal ledgers and two runs
// can be compared without their tensors. LEDGER.md describes the file and digests.jsonl beside it.
//
// A resumed run repeats the steps after its checkpoint. Lines that the ledger already has are compared, not written
// again: one that differs in a byte is a Failure, because then the run is not reproducible.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/line_file.h"
#include "elastic/step/generation.h"
#include "tensor/digest.h"
#include "tensor/numerics.h"

namespace elinvar {

inline constexpr int kLedgerVersion = 2;

// What the ledger of a run tells: of leaves, with `sample` of one virtual rank a step, if there are several (of a
// single one the reduced gradient says as much, and the digest would cost as much again); and how often of single
// tensors.
struct LedgerOptions {
  enum class Leaves { none, sample, all };
  Leaves leaves = Leaves::none;
  int64_t tensors_every = 0;  // steps; 0: only of the state, where that is digested
};
LedgerOptions::Leaves leaves_from(const std::string& word);  // UsageError
const char* name_of(LedgerOptions::Leaves leaves);
// Whether it has the digest of this virtual rank's leaf of update `step` + 1: a function of its arguments alone.
bool names_leaf(const LedgerOptions& options, int64_t step, int vrank, int vranks);

// The first line: what the whole run has in common. Equal runs have equal ones.
struct LedgerHeader {
  int numerics_version = kNumericsVersion;
  std::string numerics = "portable", scaling = "exact";
  std::string kind = {};  // of GPU, where bits are those of one kind
  int virtual_ranks = 1;
  Digest config = {}, data = {};  // of what decides the bits of the run
  LedgerOptions options = {};

  std::string text() const;
  static LedgerHeader parse(const std::string& text);  // throws Failure
};

struct LedgerLine {
  int64_t step = 0;                        // the first is 1
  std::optional<int64_t> batch_size = {};  // with adaptive scaling
  Digest batch;
  double loss = 0;
  std::map<int, Digest> leaves = {};
  Digest gradient;
  double lr = 0;
  std::optional<Digest> state;

  std::string text() const;
  static LedgerLine parse(const std::string& text);  // throws Failure
};

// What two lines of one step both tell, and differently: "batch_size", "batch", "loss", "leaf 3", "gradient", "lr",
// "state".
std::vector<std::string> differing_fields(const LedgerLine& a, const LedgerLine& b);

// Called for line after line of a run with adaptive scaling, whose first batch had `first` samples: where it changes.
void note_batch(std::vector<GenerationScaling::Change>& changes, int64_t first, const LedgerLine& line);

class Ledger {
 public:
  // Opens or creates DIR/ledger.jsonl and reads it; a torn last line is cut off. Lines that are damaged or out of order
  // are a Failure.
  explicit Ledger(const std::filesystem::path& directory);

  // Before the first line. A ledger that has lines must have begun with the same header (else UsageError).
  void begin(const LedgerHeader& header);

  int64_t length() const { return static_cast<int64_t>(lines_.size()); }
  // What the lines have to be, as far as this goes: those of a run that is replayed.
  void expect(std::vector<std::string> lines) { expected_ = std::move(lines); }
  const std::vector<std::string>& expected() const { return expected_; }
  // The line of a step in [1, length()].
  const std::string& line(int64_t step) const { return lines_[static_cast<size_t>(step - 1)]; }

  // Steps must be recorded without gaps. Returns whether the line was new; throws Failure, naming the fields that
  // differ, if it contradicts the one that is there or is expected. New lines are in the file after write().
  bool record(const LedgerLine& line);
  void write() { file_.write(); }
  const std::string& contradiction() const { return contradiction_; }  // the line with which record() failed; or ""
  void sync() { file_.sync(); }
  bool restore() { return file_.restore(); }
  bool has_state(int64_t step) const { return line(step).find(R"(,"state":")") != std::string::npos; }

 private:
  LineFile file_;
  std::string header_, contradiction_;
  std::vector<std::string> lines_, expected_;
};

// Failure if this is the first line of a ledger of version 1, which had no header.
void refuse_older_ledger(const std::string& first_line, const std::filesystem::path& ledger);

// The lines of a ledger, without the header, which must be of this version; throws Failure.
std::vector<std::string> ledger_steps(const std::filesystem::path& ledger);

// The header of a ledger that has a line; none if there is no such ledger. Throws Failure.
std::optional<LedgerHeader> ledger_header(const std::filesystem::path& ledger);

}  // namespace elinvar
