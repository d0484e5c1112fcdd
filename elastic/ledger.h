#pragma once
// The ledger of a run: ledger.jsonl, one line a step of pure facts, so that equal runs have equal ledgers and two runs
// can be compared without their tensors. Line n tells of update n (the first is 1):
//
//   {"step":12,"batch":"<32 hex>","loss":"<16 hex>","gradient":"<32 hex>","state":"<32 hex>"}
//
// batch: digest of the virtual ranks' inputs and targets. loss: the bits of the mean loss, a binary64. gradient: digest
// of the reduced gradient, before clipping. state: digest of the whole state after the update; only in the lines that
// the configuration chooses, never where an interruption happened to fall. With adaptive scaling a line also has, after
// the step, what it was made with: the size of a whole batch and the bits of the learning rate, a binary64:
//
//   {"step":12,"batch_size":96,"lr":"<16 hex>","batch":...
//
// A resumed run repeats the steps after its checkpoint. Lines that the ledger already has are compared, not written
// again: one that differs in a byte is a Failure, because then the run is not reproducible.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "elastic/line_file.h"
#include "tensor/digest.h"

namespace elinvar {

// What the ledger of a run tells of leaves: with `sample` of one virtual rank a step.
struct LedgerOptions {
  enum class Leaves { none, sample, all };
  Leaves leaves = Leaves::none;
};
LedgerOptions::Leaves leaves_from(const std::string& word);  // UsageError
// Whether it has the digest of this virtual rank's leaf of update `step` + 1: a function of its arguments alone.
bool names_leaf(const LedgerOptions& options, int64_t step, int vrank, int vranks);

struct LedgerLine {
  struct Scaling {
    int64_t batch_size = 0;
    double lr = 0;
  };
  int64_t step = 0;
  std::optional<Scaling> scaling = {};
  Digest batch;
  double loss = 0;
  Digest gradient;
  std::optional<Digest> state;

  std::string text() const;
  static LedgerLine parse(const std::string& text);  // throws Failure
};

class Ledger {
 public:
  // Opens or creates DIR/ledger.jsonl and reads it; a torn last line is cut off. Lines out of order are a Failure.
  explicit Ledger(const std::filesystem::path& directory);

  int64_t length() const { return static_cast<int64_t>(lines_.size()); }
  // What the lines have to be, as far as this goes: those of a run that is replayed.
  void expect(std::vector<std::string> lines) { expected_ = std::move(lines); }
  const std::vector<std::string>& expected() const { return expected_; }
  // The line of a step in [1, length()].
  const std::string& line(int64_t step) const { return lines_[static_cast<size_t>(step - 1)]; }

  // Steps must be recorded without gaps. Returns whether the line was new; throws Failure, naming the fields that
  // differ, if it contradicts the one that is there or is expected.
  bool record(const LedgerLine& line);
  void sync() { file_.sync(); }

 private:
  LineFile file_;
  std::vector<std::string> lines_, expected_;
};

}  // namespace elinvar
