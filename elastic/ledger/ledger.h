#pragma once
// The ledger of a run: ledger.jsonl, one line of pure facts for each step. Equal runs have equal ledgers, and two runs
// can be compared without their tensors. LEDGER.md describes the file and digests.jsonl.
//
// A resumed run repeats the steps after its checkpoint. Lines that the ledger already has are compared and not written
// again: a line that differs in one byte is a Failure, because then the run is not reproducible.
#include <algorithm>
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

// The optional content of a ledger: which rank gradients it digests, and how often it digests single tensors. `sample`
// digests one virtual rank in each step if there are several; with a single rank the reduced gradient says as much, and
// the digest would cost as much again.
struct LedgerOptions {
  enum class Leaves { none, sample, all };
  Leaves leaves = Leaves::none;
  // Steps between digests of single tensors; 0: only those of the state, when it is digested.
  int64_t tensors_every = 0;
};
LedgerOptions::Leaves leaves_from(const std::string& word);  // throws UsageError
const char* name_of(LedgerOptions::Leaves leaves);
// Returns whether the ledger has the digest of this virtual rank's gradient of update `step` + 1: a function of its
// arguments alone.
bool names_rank_gradient(const LedgerOptions& options, int64_t step, int vrank, int vranks);

// The first line: the facts of the whole run. Equal runs have equal headers.
struct LedgerHeader {
  int numerics_version = kNumericsVersion;
  std::string numerics = "portable", scaling = "exact";
  std::string kind = {};  // the kind of GPU, if the bits depend on it
  int virtual_ranks = 1;
  int64_t virtual_shards = 1;     // of the network
  Digest config = {}, data = {};  // digests of everything that determines the run's bits
  LedgerOptions options = {};

  std::string text() const;
  static LedgerHeader parse(const std::string& text);  // throws Failure
};

struct LedgerLine {
  int64_t step = 0;                        // counted from 1
  std::optional<int64_t> batch_size = {};  // only with adaptive scaling
  Digest batch;
  double loss = 0;
  std::map<int, Digest> leaves = {};
  Digest gradient;
  double lr = 0;
  std::optional<Digest> state;

  std::string text() const;
  static LedgerLine parse(const std::string& text);  // throws Failure
};

// Returns the fields that two lines of one step both have and in which they differ: "batch_size", "batch", "loss",
// "leaf 3", "gradient", "lr", "state".
std::vector<std::string> differing_fields(const LedgerLine& a, const LedgerLine& b);

// Called for each line, in order, of a run with adaptive scaling whose first batch had `first` samples. Appends to
// `changes` if the batch changes.
void note_batch(std::vector<GenerationScaling::Change>& changes, int64_t first, const LedgerLine& line);

class Ledger {
 public:
  // Opens or creates DIR/ledger.jsonl and reads it. Cuts off a torn last line. Throws Failure if lines are damaged or
  // out of order.
  explicit Ledger(const std::filesystem::path& directory);

  // Called before the first line. Throws UsageError if the ledger has lines and began with another header.
  void begin(const LedgerHeader& header);

  int64_t length() const { return static_cast<int64_t>(lines_.size()); }
  // Sets the lines that the ledger must have, as far as they go: those of a run that is replayed.
  void expect(std::vector<std::string> lines) { expected_ = std::move(lines); }
  const std::vector<std::string>& expected() const { return expected_; }
  // Returns the number of steps whose lines the ledger has or must have.
  int64_t known() const { return std::max(length(), static_cast<int64_t>(expected_.size())); }
  // Returns the line of a step in [1, length()].
  const std::string& line(int64_t step) const { return lines_[static_cast<size_t>(step - 1)]; }

  // Records a step; there must be no gaps. Returns whether the line is new. Throws Failure, which names the fields that
  // differ, if it contradicts the existing or the expected line. New lines are in the file after write().
  bool record(const LedgerLine& line);
  void write() { file_.write(); }
  const std::string& contradiction() const { return contradiction_; }  // the line with which record() failed, or ""
  void sync() { file_.sync(); }
  bool restore() { return file_.restore(); }
  bool has_state(int64_t step) const { return line(step).find(R"(,"state":")") != std::string::npos; }

 private:
  LineFile file_;
  std::string header_, contradiction_;
  std::vector<std::string> lines_, expected_;
};

// Returns where the batch changes in a run with adaptive scaling whose first batch had `first` samples, as far as the
// lines are known that the ledger has or must have.
std::vector<GenerationScaling::Change> batch_changes(const Ledger& ledger, int64_t first);

// Throws Failure if this is the first line of a ledger of version 1, which had no header.
void refuse_older_ledger(const std::string& first_line, const std::filesystem::path& ledger);

// Returns the lines of a ledger without the header. Throws Failure, also if the header has another version.
std::vector<std::string> ledger_steps(const std::filesystem::path& ledger);

// Returns the header of a ledger that has a line; null if there is no such ledger. Throws Failure.
std::optional<LedgerHeader> ledger_header(const std::filesystem::path& ledger);

}  // namespace elinvar
