#pragma once
// The rows of a growing table: ids get them in the order in which steps first touch them, ids of the same step in
// ascending order. So an assignment is a function of the run, and those of two steps of a run are prefixes of one
// another.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "nn/parameters.h"

namespace elinvar {

class RowAssignment {
 public:
  // `ids` has the id of each row, int64, from the first on; rows that are free have -1. It belongs to the state.
  explicit RowAssignment(std::shared_ptr<Buffer> ids) : ids_(std::move(ids)) {}

  // Reads the ids again if others have changed them, as loading a state does. Returns whether they have.
  bool refresh();
  int64_t used() const { return used_; }
  int64_t capacity() const { return ids_->value.dim(0); }
  std::optional<int64_t> row_of(int64_t id) const;  // null if it has none
  // Gives the next rows to ids that have none.
  void append(std::span<const int64_t> ids);

 private:
  bool changed() const;

  std::shared_ptr<Buffer> ids_;
  std::unordered_map<int64_t, int64_t> rows_;
  int64_t used_ = 0, last_ = -1;  // the id of the last row in use
};

}  // namespace elinvar
