#pragma once
// digests.jsonl, beside the ledger of a run: the short digests of what the ledger's digests cover, so that a difference
// is located without any tensors. LEDGER.md describes it. A header with names and sizes, then lines in the order of
// steps, some steps without one. Equal runs have equal files.
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

// A tensor as digests know it.
struct TensorLayout {
  std::string name, dtype;
  std::vector<int64_t> shape;
  int64_t numel() const;
  int64_t element_bytes() const;
  int64_t chunks() const;  // that its digest covers (tensor/digest_tree.h)
};
DType dtype_from(const std::string& name);  // "float32", ..; throws UsageError
TensorLayout layout_of(const std::string& name, const Tensor& tensor);
nlohmann::json to_json(const std::vector<TensorLayout>& layout);  // [[name, dtype, [extents]]..]
std::vector<TensorLayout> layout_from(const nlohmann::json& json);

struct DigestHeader {
  int64_t tensors_every = 0;
  std::vector<TensorLayout> gradient = {};  // of a leaf and of the reduction; batch statistics follow, unnamed
  std::vector<TensorLayout> state = {};     // in name order
  std::string text() const;
  static DigestHeader parse(const std::string& text);  // throws Failure
};

// Of one step. Several short digests stand one after another in a string; "" is unknown.
struct DigestLine {
  int64_t step = 0;
  std::string batches = {};                // of each virtual rank: input and target; in older files one of both
  std::string losses = {};                 // of each virtual rank: not a digest, but the 16 digits of its loss's bits
  std::string gradient = {};               // of each reduced tensor
  std::map<int, std::string> leaves = {};  // of each tensor of the leaves that the ledger names
  StateDigests state = {};
  std::string text() const;
  static DigestLine parse(const std::string& text);  // throws Failure
  // What is wrong with a line of this step that somebody else wrote, without reading all of it; "": nothing.
  static std::string fault(int64_t step, std::string_view text);
};

class DigestFile {
 public:
  // Opens or creates DIR/digests.jsonl; a torn last line is cut off, and so are lines of steps that the ledger does not
  // reach. Lines that are damaged, out of order or missing between others are a Failure.
  DigestFile(const std::filesystem::path& directory, const Ledger& ledger);
  void begin(const DigestHeader& header);  // as Ledger::begin
  int64_t last() const { return last_; }   // the step of the last line; 0 without any
  // Failure if the file has lines, but ends before the last one that a run at `step` has.
  void check_reaches(const Ledger& ledger, int64_t step) const;
  // Whether the first lines of a run at `step` are missing: somebody moved the file away.
  bool begins_late(const Ledger& ledger, int64_t step) const;
  // The line of a step, DigestLine::text(): one that is in the file already is passed over.
  void record(int64_t step, const std::string& line);
  void write() { file_.write(); }  // what was recorded
  void sync() { file_.sync(); }
  bool restore() { return file_.restore(); }

 private:
  std::optional<int64_t> missing_between(const Ledger& ledger, int64_t before, int64_t after) const;

  LineFile file_;
  std::string header_;
  int64_t tensors_every_ = 0, first_ = 0, last_ = 0;
};

}  // namespace elinvar
