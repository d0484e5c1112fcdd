#pragma once
// Sparse tables: parameters (rows, channels) of which a step reads some rows by index and nothing else, and whose
// gradient and update are of these rows alone (NUMERICS.md, rule 30).
//
// The touched rows of a step are those that any sample of the global batch looks up, in ascending order. They follow
// from the inputs of the batch, so every worker finds the same ones, and no message names them. The gradient has the
// shape (capacity, channels), whatever the number of touched rows: place i has the gradient of touched row i, and
// places after the last are zeros. Reductions, exchanges, norms and digests take it like any other gradient.
//
//   make_sparse(network.parameters, patterns, samples);
//   touch(network.parameters, inputs);                  // of the global batch, before the step's rank gradients
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace elinvar {

struct Inputs;
struct Parameters;

class TouchedRows {
 public:
  // Returns the rows that a forward pass looks up, int64 of any shape on the CPU.
  using RowsOf = std::function<Tensor(const Inputs&)>;
  // Of a table of `rows` rows; a sample looks up at most `lookups` of them.
  TouchedRows(int64_t rows, int64_t lookups, RowsOf rows_of);

  // Makes the table sparse, for batches of at most so many samples. It is dense before.
  void make_sparse(int64_t samples);
  bool sparse() const { return capacity_ > 0; }
  int64_t capacity() const { return capacity_; }  // places of a gradient

  void touch(const Inputs& batch);              // begins a step
  const Tensor& rows() const { return rows_; }  // the touched rows, ascending, int64 on the CPU
  // Returns the place in the gradient of each row. Throws UsageError for a row that is not touched.
  Tensor places(const Tensor& rows) const;

 private:
  int64_t all_, lookups_, capacity_ = 0;
  RowsOf rows_of_;
  Tensor rows_ = Tensor::empty({0}, DType::i64);
};

// Makes the tables sparse whose names match one of the patterns (name_matches in nn/parameters.h), for batches of at
// most `samples`. Throws SettingError with the key optimizer.sparse for a pattern that matches no table, or also a
// parameter that is read in other ways.
void make_sparse(Parameters& parameters, std::span<const std::string> patterns, int64_t samples);
bool any_sparse(const Parameters& parameters);

// Begins a step with this global batch.
void touch(Parameters& parameters, const Inputs& batch);

}  // namespace elinvar
