#pragma once
// digests.jsonl, next to the ledger of a run: the short digests of the data that the ledger's digests cover, which
// locate a difference without any tensors (LEDGER.md). A header with names and sizes precedes the lines, which are in
// the order of steps; some steps have none. Equal runs have equal files.
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "elastic/ledger/ledger.h"
#include "elastic/ledger/line_file.h"
#include "elastic/step/step.h"
#include "tensor/state.h"

namespace elinvar {

// The description of a tensor that its digests need.
struct TensorLayout {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t numel() const;
  int64_t element_bytes() const;
  int64_t chunks() const;  // the number of chunks in its digest (tensor/digest_tree.h)
};
DType dtype_from(const std::string& name);  // "float32", ..; throws UsageError
TensorLayout layout_of(const std::string& name, const Tensor& tensor);
nlohmann::json to_json(const std::vector<TensorLayout>& layout);  // [[name, dtype, [extents]]..]
std::vector<TensorLayout> layout_from(const nlohmann::json& json);

struct DigestHeader {
  int64_t tensors_every = 0;
  std::vector<TensorLayout> gradient =
      {};  // tensors of a rank gradient and of the reduction; batch statistics follow, unnamed
  std::vector<TensorLayout> state = {};  // in name order
  std::string text() const;
  static DigestHeader parse(const std::string& text);  // throws Failure
};

// The digests of one step. A string concatenates several short digests; "" is unknown.
struct DigestLine {
  int64_t step = 0;
  std::string batches = {};  // each virtual rank's input and target; older files have one digest for both
  // The 16 hexadecimal digits of the bits of each virtual rank's loss, which are not a digest.
  std::string losses = {};
  std::string gradient = {};               // digests of each reduced tensor
  std::map<int, std::string> leaves = {};  // digests of each tensor of the rank gradients that the ledger names
  StateDigests state = {};
  std::string text() const;
  static DigestLine parse(const std::string& text);  // throws Failure
  // Returns what is wrong with a line of this step that another process wrote, or "". Does not read all of it.
  static std::string fault(int64_t step, std::string_view text);
};

class DigestFile {
 public:
  // Opens or creates DIR/digests.jsonl. Cuts off a torn last line, and passes over lines of steps that the ledger does
  // not reach. Throws Failure if lines are damaged, out of order or missing between others.
  DigestFile(const std::filesystem::path& directory, const Ledger& ledger);
  // Like Ledger::begin. Cuts off the lines that were passed over: a run that cannot begin keeps them.
  void begin(const DigestHeader& header);
  int64_t last() const { return last_; }  // the step of the last line; 0 without lines
  // Throws Failure if the file has lines but ends before the last line that a run at `step` must have.
  void check_reaches(const Ledger& ledger, int64_t step) const;
  // Returns whether the first lines of a run at `step` are missing, because the file was moved away.
  bool begins_late(const Ledger& ledger, int64_t step) const;
  // Records the line of a step, DigestLine::text(); ignores a line that is already in the file.
  void record(int64_t step, const std::string& line);
  void write() { file_.write(); }  // writes the recorded lines
  void sync() { file_.sync(); }
  bool restore() { return file_.restore(); }

 private:
  std::optional<int64_t> missing_between(const Ledger& ledger, int64_t before, int64_t after) const;

  LineFile file_;
  std::optional<size_t> kept_;  // the number of lines to keep; null: all
  std::string header_;
  int64_t tensors_every_ = 0, first_ = 0, last_ = 0;
};

}  // namespace elinvar
