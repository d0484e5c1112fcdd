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
//   ... reduction; then the update: bind(), rows(), read(); commit_touched(network.parameters) ...
//
// Nothing before the update changes the state, so a step may be begun again, also with a state that was loaded.
//
// A table may be absent (nn/residence.h), its rows lying elsewhere: then values() has those that were looked up so far.
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nn/row_assignment.h"
#include "tensor/tensor.h"

namespace elinvar {

struct Inputs;

// Fills rows with the initial values of ids, float32 on the CPU.
using InitialRows = std::function<void(std::span<const int64_t> ids, Tensor& rows)>;

// How a table grows.
struct TableGrowth {
  std::shared_ptr<Buffer> ids;  // of rows (nn/row_assignment.h)
  InitialRows initialise;
};

class TouchedRows {
 public:
  // Returns the ids that a forward pass looks up, int64 of any shape on the CPU; -1 is none.
  using IdsOf = std::function<Tensor(const Inputs&)>;
  // Returns these rows of the table, ascending, as (rows, channels) on any device.
  using Fetch = std::function<Tensor(std::span<const int64_t> rows)>;
  // A sample looks up at most `lookups` rows. `initial`, if any, gives the initial values of a table that does not
  // grow.
  TouchedRows(int64_t lookups, IdsOf ids_of, InitialRows initial = {})
      : lookups_(lookups), ids_of_(std::move(ids_of)), initial_(std::move(initial)) {}
  void grow(TableGrowth growth);  // makes the table grow; it must be sparse to be trained
  bool grows() const { return growth_.initialise != nullptr; }
  // The initial values of rows of a table that does not grow; may be empty.
  const InitialRows& initial() const { return initial_; }

  // Makes the table absent: `fetch` gets its rows, and its exceptions reach the callers of lookups. An empty `fetch`
  // says that the table is present again.
  void fetch_by(Fetch fetch) { fetch_ = std::move(fetch); }
  bool absent() const { return fetch_ != nullptr; }

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
  // Returns the place of each id, at which values() has the row from now on, and -1 for -1. Throws UsageError for one
  // that is not touched.
  Tensor places(const Tensor& ids);
  // Returns a copy of the touched rows of a part of the table, of adjacent rows from `first` on; and their numbers in
  // the part, and [begin, end) of their places.
  Tensor read(const Tensor& part, int64_t first = 0) const;
  Tensor rows_in(int64_t first, int64_t count) const;
  std::pair<int64_t, int64_t> places_in(int64_t first, int64_t count) const;
  void commit();  // ends a step: new ids have their rows

  // The rows that the last update changed, ascending, int64 on the CPU; undefined: unknown, any rows.
  const Tensor& updated() const { return updated_; }
  void forget_updated() { updated_ = Tensor(), updates_all_ = false; }  // another state is loaded
  void updates_all() { updates_all_ = true; }  // the next update gives the table values of all rows

  // Returns the rows (ids' shape.., channels) of any ids, with initial values where a table that grows has none. That
  // of -1 is some other's.
  Tensor lookup(const Tensor& table, const Tensor& ids);

 private:
  Tensor initial_of(std::span<const int64_t> ids, int64_t channels) const;
  Tensor rows_at(const Tensor& table, const Tensor& index) const;
  void fetch_places(std::span<const int64_t> places);

  int64_t lookups_, capacity_ = 0;
  IdsOf ids_of_;
  InitialRows initial_;
  Fetch fetch_;
  TableGrowth growth_;
  std::unique_ptr<RowAssignment> assignment_;  // of a table that grows
  std::vector<int64_t> touched_, places_;      // ids, ascending, and the place of each
  std::vector<int64_t> fresh_;                 // touched ids without a row, which get the last of the touched rows
  bool bound_ = false;
  Tensor rows_ = Tensor::empty({0}, DType::i64), values_, updated_;
  std::vector<char> there_;  // of an absent table: by place, whether values() has the row
  bool updates_all_ = false;
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
// Ends a step, once the touched rows are updated.
void commit_touched(Parameters& parameters);

}  // namespace elinvar
