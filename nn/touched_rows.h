#pragma once
// Sparse tables: parameters (rows, channels) of which a step reads some rows by id and nothing else, and whose gradient
// and update are of these rows alone (NUMERICS.md, rule 31). The id of a row is its number, unless the table grows:
// then rows are given to ids as steps first touch them (nn/row_assignment.h).
//
// The touched rows of a step are those that any sample of the global batch looks up, in ascending order. They follow
// from the inputs of the batch, so every worker finds the same ones, and no message names them. The gradient has the
// shape (capacity, channels), whatever the number of touched rows: place i has the gradient of touched row i, and
// places after the last are zeros. Reductions, exchanges, norms and digests take it like any other gradient.
//
//   make_sparse(network.parameters, patterns, samples);
//   touch(network.parameters, inputs);           // of the global batch
//   read_touched(network.parameters);            // before the step's passes, which look up values() at places()
//   ... reduction; then the update: bind(), rows(), read(), commit() ...
//
// Nothing before the update changes the state, so a step may be begun again, also with a state that was loaded.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/row_assignment.h"
#include "tensor/tensor.h"

namespace elinvar {

struct Inputs;

// How a table grows.
struct TableGrowth {
  std::shared_ptr<Buffer> ids;  // of rows (nn/row_assignment.h)
  // Fills rows with the initial values of ids, float32 on the CPU.
  std::function<void(std::span<const int64_t> ids, Tensor& rows)> initialise;
};

class TouchedRows {
 public:
  // Returns the ids that a forward pass looks up, int64 of any shape on the CPU; -1 is none.
  using IdsOf = std::function<Tensor(const Inputs&)>;
  // A sample looks up at most `lookups` rows.
  TouchedRows(int64_t lookups, IdsOf ids_of) : lookups_(lookups), ids_of_(std::move(ids_of)) {}
  void grow(TableGrowth growth);  // makes the table grow; it must be sparse to be trained
  bool grows() const { return growth_.initialise != nullptr; }

  // Makes the table sparse, for batches of at most so many samples. It is dense before.
  void make_sparse(Var& table, int64_t samples);
  bool sparse() const { return capacity_ > 0; }
  int64_t capacity() const { return capacity_; }  // places of a gradient

  void touch(const Inputs& batch);  // begins a step
  // Finds the rows of the touched ids in a table as it is now. Throws Failure if a table that grows lacks rows for new
  // ones.
  void bind(const Tensor& table);
  const Tensor& rows() const { return rows_; }  // the touched rows, ascending, int64 on the CPU
  // Binds, and copies the touched rows of the table to values(), which are always at the same address.
  void load(const Tensor& table);
  const Tensor& values() const { return values_; }
  // Returns the place of each id, and -1 for -1. Throws UsageError for one that is not touched.
  Tensor places(const Tensor& ids) const;
  // Returns a copy of the touched rows of the table.
  Tensor read(const Tensor& table) const;
  void commit();  // ends a step: new ids have their rows

  // Returns the rows (ids' shape.., channels) of any ids, with initial values where a table that grows has none. That
  // of -1 is some other's.
  Tensor lookup(const Tensor& table, const Tensor& ids);

 private:
  int64_t lookups_, capacity_ = 0;
  IdsOf ids_of_;
  TableGrowth growth_;
  std::unique_ptr<RowAssignment> assignment_;  // of a table that grows
  std::vector<int64_t> touched_, places_;      // ids, ascending, and the place of each
  std::vector<int64_t> fresh_;                 // touched ids without a row, which get the last of the touched rows
  bool bound_ = false;
  Tensor rows_ = Tensor::empty({0}, DType::i64), values_;
};

// Makes the tables sparse whose names match one of the patterns (name_matches in nn/parameters.h), for batches of at
// most `samples`. Throws SettingError with the key optimizer.sparse for a pattern that matches no table, or also a
// parameter that is read in other ways, and for a table that grows and is not sparse.
void make_sparse(Parameters& parameters, std::span<const std::string> patterns, int64_t samples);
bool any_sparse(const Parameters& parameters);
bool any_grows(const Parameters& parameters);

// Begins a step with this global batch.
void touch(Parameters& parameters, const Inputs& batch);
// Reads the touched rows, for passes with the state as it is now.
void read_touched(Parameters& parameters);

}  // namespace elinvar
