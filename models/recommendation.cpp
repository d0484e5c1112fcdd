// Networks for rows of numbers and categories (data/table.cpp), as clicks and ratings are predicted. The categories of
// all columns share one table of vectors, `embedding.weight` (all symbols, channels), column after column, which can be
// sparse (optimizer.sparse). With `rows` it has only so many rows, which categories get as training comes upon them.
// A column may have several categories in a row (data.most_ids); dlrm and deepfm take the sum of their vectors, or the
// mean with `bags = "mean"`, as the column's vector, which is zero where there are none.
//
//   dlrm    M. Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems",
//           2019: a perceptron makes a vector of the numbers; it and the products of all pairs of vectors go through
//           another perceptron. Parameters: bottom.<i>, top.<i>.
//   deepfm  H. Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", IJCAI 2017: the
//           sum of a linear function, of a factorization machine and of a perceptron. A number's vector is a parameter
//           times the number. Parameters: first.weight, linear, numbers.weight, deep.<i>.
//   neumf   X. He et al., "Neural Collaborative Filtering", WWW 2017, of two columns, mostly users and items: the
//           elementwise product of one pair of vectors beside a perceptron of another. Parameters: layers.<i>, head.
//           A sample may be several such rows, candidates (C, 2), with an output for each (C).
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/linear.h"
#include "autograd/pointwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "models/kinds.h"
#include "nn/linear.h"
#include "nn/segments.h"
#include "nn/touched_rows.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"
#include "tensor/ops/embedding_bag.h"

namespace elinvar {
namespace {

// Which inputs a network has, of the two that rows may have.
struct RowInput {
  int64_t numbers = 0;                 // float32 (N, F), the first input if there are any
  std::vector<int64_t> symbols = {};   // of each column of the categories int32 (N, K), the next input
  std::vector<int64_t> most_ids = {};  // of each column, if any has several: the categories are (N, sum of these)
  BagMode mode = BagMode::sum;
  int64_t candidates = 1;  // rows of categories in a sample
  int64_t table_rows = 0;  // of the table of vectors, if it grows; 0: those of all symbols

  // Columns of one category each are bags of one if another column has several.
  std::optional<Bags> bags() const { return most_ids.empty() ? std::nullopt : std::optional(Bags{most_ids, mode}); }
};

int64_t places_of(const std::vector<int64_t>& symbols, const std::vector<int64_t>& most_ids) {
  return most_ids.empty() ? static_cast<int64_t>(symbols.size()) : Bags{most_ids}.places();
}

// `candidates`: a sample may be several rows of categories, (C, K).
RowInput rows_of(Settings& s, const InputInfo& input, bool candidates = false) {
  const bool first_are_numbers = input.dtype == DType::f32;
  const bool one_row = input.sample.ndim() == 1, several = input.sample.ndim() == 2 && !first_are_numbers;
  const bool rows = (one_row || (candidates && several)) && input.further.size() <= (first_are_numbers ? 1 : 0) &&
                    (first_are_numbers ? input.further.empty() || input.further[0].dtype == DType::i32
                                       : places_of(input.symbols, input.most_ids) == input.sample.back());
  s.require(rows, "kind", "= '{}' takes rows of numbers and categories, as data of kind \"table\" have, not {} of {}",
            s.kind(), to_string(input.sample), name_of(input.dtype));
  RowInput found{.symbols = input.symbols,
                 .most_ids = input.most_ids,
                 .candidates = several ? input.sample[0] : 1,
                 .table_rows = s.integer("rows", 0, 0, int64_t{1} << 32)};
  if (first_are_numbers) {
    found.numbers = input.sample[0];
    found.symbols = input.further.empty() ? std::vector<int64_t>() : input.further[0].symbols;
    found.most_ids = input.further.empty() ? std::vector<int64_t>() : input.further[0].most_ids;
  }
  if (candidates)
    s.require(found.most_ids.empty(), "kind", "= '{}' takes one category of each column, but data.most_ids allows more",
              s.kind());
  else if (s.choice("bags", "sum", {"sum", "mean"}) == "mean") found.mode = BagMode::mean;
  s.require(found.table_rows == 0 || !found.symbols.empty(), "rows", "= {} are for categories, which the data lack",
            found.table_rows);
  return found;
}

// How vectors begin: those of a whole table, and those of some categories.
struct VectorInit {
  Initializer whole;
  init::RowInitializer rows;
};
VectorInit uniform_vectors(double bound) { return {init::uniform(bound), init::uniform_rows(bound)}; }
VectorInit normal_vectors(double deviation) { return {init::normal(deviation), init::normal_rows(deviation)}; }

// The vectors of categories. If the table grows, a category has the vector that it would have in a whole table.
class CategoryVectors {
 public:
  CategoryVectors() = default;
  CategoryVectors(const Scope& scope, const RowInput& input, int64_t channels, const VectorInit& init)
      : columns_(columns_of(input)), bags_(input.bags()) {
    const InitialRows initial = [rows = init.rows, key = scope.key("weight")](
                                    std::span<const int64_t> ids, Tensor& values) { rows(ids, values, key); };
    touched_ = std::make_shared<TouchedRows>(
        input.candidates * static_cast<int64_t>(columns_.size()),
        [columns = columns_, after_numbers = input.numbers > 0](const Inputs& inputs) {
          return ids_in(columns, (after_numbers ? inputs.further.at(0) : inputs.first).to(Device{}));
        },
        initial);
    const int64_t all = std::accumulate(input.symbols.begin(), input.symbols.end(), int64_t{0});
    const bool grows = input.table_rows > 0;
    weight_ = scope.table("weight", {grows ? input.table_rows : all, channels},
                          grows ? init::constant(0.0) : init.whole, touched_);
    if (grows) touched_->grow({.ids = scope.buffer("ids", {input.table_rows}, -1, DType::i64), .initialise = initial});
  }

  // Categories (N, .., places) int32 -> (N, .., K, channels)
  Var operator()(const Tensor& categories, const Context& context) const {
    const auto ids_of = [columns = columns_](std::span<const Tensor> given) {
      return std::vector{ids_in(columns, given[0])};
    };
    const Tensor ids = derived({categories.to(Device{})}, ids_of)[0];
    if (touched_->sparse() && context.training) {
      const auto places = [touched = touched_](std::span<const Tensor> given) {
        return std::vector{touched->places(given[0])};
      };
      const Tensor place = derived({ids}, places)[0];
      return bags_ ? embedding_bag(weight_, touched_->values(), place, *bags_)
                   : embedding(weight_, touched_->values(), place);
    }
    const bool looked_up = touched_->grows() || touched_->absent();
    if (!bags_) return looked_up ? touched_->lookup(weight_.value(), ids) : embedding(weight_, ids);
    if (!looked_up) return embedding_bag(weight_, ids, *bags_);
    const auto [own, places] = distinct(ids);
    return embedding_bag(touched_->lookup(weight_.value(), own), places, *bags_);
  }

 private:
  // The column of a place in a row of categories.
  struct Column {
    int64_t number, begin, symbols;  // `begin`: its first row of a table of all symbols
    bool several;                    // it may have no category
  };

  static std::vector<Column> columns_of(const RowInput& input) {
    std::vector<Column> columns;
    int64_t begin = 0;
    for (size_t k = 0; k < input.symbols.size(); ++k) {
      const int64_t most = input.most_ids.empty() ? 1 : input.most_ids[k];
      columns.insert(columns.end(), static_cast<size_t>(most),
                     {static_cast<int64_t>(k), begin, input.symbols[k], most > 1});
      begin += input.symbols[k];
    }
    return columns;
  }

  static Tensor ids_in(const std::vector<Column>& columns, const Tensor& categories) {
    const Tensor given = categories.to_contiguous();
    const auto places = static_cast<int64_t>(columns.size());
    check(given.dtype() == DType::i32 && given.ndim() >= 2 && given.dim(-1) == places,
          "[embedding] int32 categories (N, .., {}) expected, got {} {}", places, name_of(given.dtype()),
          to_string(given.shape()));
    Tensor rows = Tensor::empty(given.shape(), DType::i64);
    for (int64_t i = 0, k = 0; i < given.numel(); ++i) {
      const int64_t category = given.data<int32_t>()[i];
      const Column& column = columns[static_cast<size_t>(k)];
      const bool none = column.several && category == kNoId;
      check(none || (category >= 0 && category < column.symbols),
            "[embedding] category {} of sample {}, column {}, is not in [0, {})", category, i / places, column.number,
            column.symbols);
      rows.data<int64_t>()[i] = none ? kNoId : column.begin + category;
      if (++k == places) k = 0;
    }
    return rows;
  }

  // Returns the different ids, ascending, at least one; and for each place the place of its id among them, or -1.
  static std::pair<Tensor, Tensor> distinct(const Tensor& ids) {
    const auto all = ids.span<int64_t>();
    std::vector<int64_t> own(all.begin(), all.end());
    std::ranges::sort(own);
    own.erase(std::unique(own.begin(), own.end()), own.end());
    if (!own.empty() && own.front() == kNoId) own.erase(own.begin());
    if (own.empty()) own.push_back(0);
    Tensor places = Tensor::empty(ids.shape(), DType::i64);
    for (size_t i = 0; i < all.size(); ++i)
      places.data<int64_t>()[i] = all[i] == kNoId ? kNoId : std::ranges::lower_bound(own, all[i]) - own.begin();
    return {Tensor::from(own, {std::ssize(own)}), places};
  }

  std::vector<Column> columns_;
  std::optional<Bags> bags_;
  std::shared_ptr<TouchedRows> touched_;
  Var weight_;
};

// Linear layers, each followed by a ReLU.
class Tower {
 public:
  Tower() = default;
  Tower(const Scope& scope, int64_t in, const std::vector<int64_t>& widths) {
    for (const int64_t width : widths) {
      layers_.emplace_back(scope / static_cast<int64_t>(layers_.size()), in, width);
      in = width;
    }
  }
  Var operator()(Var x) const {
    for (const Linear& layer : layers_) x = relu(layer(x));
    return x;
  }

 private:
  std::vector<Linear> layers_;
};

// The categories of a batch whose first input is `first`.
Tensor categories_in(const RowInput& rows, const Var& first, const Context& context) {
  if (rows.numbers == 0) return first.value();
  check(context.inputs.size() == 1, "[rows] numbers and categories expected, got {} inputs", 1 + context.inputs.size());
  return context.inputs[0];
}

struct DlrmOptions {
  int64_t channels = 16;
  std::vector<int64_t> bottom = {64, 32}, top = {64, 32};
};

class Dlrm final : public SegmentedNetwork {
 public:
  Dlrm(const DlrmOptions& o, const RowInput& rows, int64_t outputs, uint64_t seed) : rows_(rows) {
    const Scope scope(parameters, seed);
    const auto vectors = static_cast<int64_t>(rows.symbols.size()) + (rows.numbers > 0 ? 1 : 0);
    if (!rows.symbols.empty()) {
      const int64_t most = *std::ranges::max_element(rows.symbols);
      embedding_ = CategoryVectors(scope / "embedding", rows, o.channels,
                                   uniform_vectors(1.0 / std::sqrt(static_cast<double>(most))));
    }
    if (rows.numbers > 0) {
      std::vector<int64_t> widths = o.bottom;
      widths.push_back(o.channels);
      bottom_ = Tower(scope / "bottom", rows.numbers, widths);
    }
    add_segment("vectors", [this](const Residual& first, Context& c) { return vectors_of(first, c); });
    const int64_t pairs = vectors * (vectors - 1) / 2, dense = rows.numbers > 0 ? o.channels : 0;
    top_ = Tower(scope / "top", dense + pairs, o.top);
    add_segment("top", [this](const Residual& stream, Context&) { return top_(interactions(stream)); });
    head_ = Linear(scope / "head", o.top.empty() ? dense + pairs : o.top.back(), outputs);
    add_head();
  }

  ShardedLogits head(Residual x, Context&) const override { return {.parts = {head_(x)}}; }

 private:
  // (N, 1 + K, channels): the numbers' vector, and one for each category.
  Var vectors_of(const Var& first, const Context& context) const {
    std::vector<Var> parts;
    if (rows_.numbers > 0) {
      const Var dense = bottom_(first);
      parts.push_back(reshape(dense, {dense.dim(0), 1, dense.dim(1)}));
    }
    if (!rows_.symbols.empty()) parts.push_back(embedding_(categories_in(rows_, first, context), context));
    return parts.size() == 1 ? parts[0] : concat(std::move(parts), 1);
  }

  // The numbers' vector, and the products of each vector with those before it.
  Var interactions(const Var& vectors) const {
    const int64_t n = vectors.dim(0), count = vectors.dim(1), channels = vectors.dim(2);
    std::vector<Var> parts;
    if (rows_.numbers > 0) parts.push_back(reshape(slice(vectors, 1, 0, 1), {n, channels}));
    std::vector<int64_t> extents{count};  // of row 0; each other row i is two parts, of which the first is used
    for (int64_t i = 1; i < count; ++i) extents.insert(extents.end(), {i, count - i});
    const Var products = reshape(matmul(vectors, transpose(vectors, 1, 2)), {n, count * count});
    const std::vector<Var> of_rows = split(products, extents, 1);
    for (size_t i = 1; i < of_rows.size(); i += 2) parts.push_back(of_rows[i]);
    return parts.size() == 1 ? parts[0] : concat(std::move(parts), 1);
  }

  RowInput rows_;
  CategoryVectors embedding_;
  Tower bottom_, top_;
  Linear head_;
};

struct DeepFmOptions {
  int64_t channels = 10;
  std::vector<int64_t> deep = {64, 64};
};

class DeepFm final : public SegmentedNetwork {
 public:
  DeepFm(const DeepFmOptions& o, const RowInput& rows, uint64_t seed) : rows_(rows) {
    const Scope scope(parameters, seed);
    const auto fields = rows.numbers + static_cast<int64_t>(rows.symbols.size());
    // Segments pass on the vectors of all fields, (N, fields, 1 + channels); the first channel is the linear part.
    if (!rows.symbols.empty())
      embedding_ = CategoryVectors(scope / "embedding", rows, 1 + o.channels, normal_vectors(0.01));
    if (rows.numbers > 0)
      numbers_ = (scope / "numbers").parameter("weight", {rows.numbers, 1 + o.channels}, init::normal(0.01));
    add_segment("vectors", [this](const Residual& first, Context& c) { return vectors_of(first, c); });
    deep_ = Tower(scope / "deep", fields * o.channels, o.deep);
    head_ = Linear(scope / "head", o.deep.empty() ? fields * o.channels : o.deep.back(), 1);
    add_head();
  }

  ShardedLogits head(Residual stream, Context&) const override {
    const Var all = stream;
    const int64_t n = all.dim(0), channels = all.dim(2) - 1;
    const std::vector<Var> linear_and_vectors = split(all, {1, channels}, 2);
    const Var first = sum(linear_and_vectors[0], {1}), vectors = linear_and_vectors[1];
    const Var sums = sum(vectors, {1}), of_squares = sum(square(vectors), {1});
    const Var pairs = sum(square(sums) - of_squares, {1}, /*keepdim=*/true) * 0.5;
    return {.parts = {first + pairs + head_(deep_(reshape(vectors, {n, -1})))}};
  }

 private:
  Var vectors_of(const Var& first, const Context& context) const {
    std::vector<Var> parts;
    if (rows_.numbers > 0) parts.push_back(reshape(first, {first.dim(0), rows_.numbers, 1}) * numbers_);
    if (!rows_.symbols.empty()) parts.push_back(embedding_(categories_in(rows_, first, context), context));
    return parts.size() == 1 ? parts[0] : concat(std::move(parts), 1);
  }

  RowInput rows_;
  CategoryVectors embedding_;
  Var numbers_;
  Tower deep_;
  Linear head_;
};

struct NeuMfOptions {
  int64_t factors = 8;
  std::vector<int64_t> layers = {32, 16, 8};
};

class NeuMf final : public SegmentedNetwork {
 public:
  NeuMf(const NeuMfOptions& o, const RowInput& rows, uint64_t seed) : factors_(o.factors) {
    const Scope scope(parameters, seed);
    const int64_t half = (o.layers.empty() ? 2 : o.layers[0] + 1) / 2;  // of the perceptron's first input
    embedding_ = CategoryVectors(scope / "embedding", rows, o.factors + half, normal_vectors(0.01));
    add_segment("vectors", [this](const Residual& pairs, Context& c) { return embedding_(Var(pairs).value(), c); });
    layers_ = Tower(scope / "layers", 2 * half, o.layers);
    head_ = Linear(scope / "head", o.factors + (o.layers.empty() ? 2 * half : o.layers.back()), 1);
    add_head();
  }

  ShardedLogits head(Residual stream, Context&) const override {
    const Var given = stream;  // (N, 2, factors + half), or (N, C, 2, factors + half)
    const int64_t all = given.dim(-1);
    const std::vector<Var> vectors = split(reshape(given, {-1, 2, all}), {factors_, all - factors_}, 2);
    const int64_t n = vectors[0].dim(0);
    const std::vector<Var> factors = split(vectors[0], {1, 1}, 1);
    const Var deep = layers_(reshape(vectors[1], {n, 2 * (all - factors_)}));
    const Var output = head_(concat({reshape(factors[0] * factors[1], {n, factors_}), deep}, 1));
    return {.parts = {reshape(output, {given.dim(0), -1})}};
  }

 private:
  int64_t factors_;
  CategoryVectors embedding_;
  Tower layers_;
  Linear head_;
};

void require_one_output(const Settings& s, const InputInfo& input) {
  s.require(input.classes == 1, "kind", "= '{}' predicts one number, but the data have {}{}", s.kind(), input.classes,
            s.kind() == "neumf" ? "; several candidates (data of kind 'ratings') need task.kind = \"ranking\"" : "");
}

}  // namespace

std::vector<ModelKind> recommendation_kinds() {
  return {
      {"dlrm",
       [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
         const RowInput rows = rows_of(s, input);
         s.require(rows.symbols.size() + (rows.numbers > 0 ? 1 : 0) > 1, "kind",
                   "= 'dlrm' multiplies vectors of two columns of categories, or of one and the numbers");
         const DlrmOptions options{.channels = s.integer("channels", 16),
                                   .bottom = s.integers("bottom", {64, 32}),
                                   .top = s.integers("top", {64, 32})};
         return std::make_unique<Dlrm>(options, rows, input.classes, seed);
       }},
      {"deepfm",
       [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
         const RowInput rows = rows_of(s, input);
         require_one_output(s, input);
         const DeepFmOptions options{.channels = s.integer("channels", 10), .deep = s.integers("deep", {64, 64})};
         return std::make_unique<DeepFm>(options, rows, seed);
       }},
      {"neumf", [](Settings& s, const InputInfo& input, uint64_t seed) -> std::unique_ptr<Network> {
         const RowInput rows = rows_of(s, input, /*candidates=*/true);
         require_one_output(s, input);
         s.require(rows.numbers == 0 && rows.symbols.size() == 2, "kind",
                   "= 'neumf' takes two columns of categories, such as users and items, and no numbers; the data "
                   "have {} and {}",
                   rows.symbols.size(), rows.numbers);
         const NeuMfOptions options{.factors = s.integer("factors", 8), .layers = s.integers("layers", {32, 16, 8})};
         return std::make_unique<NeuMf>(options, rows, seed);
       }}};
}

}  // namespace elinvar
