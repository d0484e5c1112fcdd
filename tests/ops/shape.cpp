#include <algorithm>

#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "autograd/shards.h"
#include "tensor/ops/concat.h"
#include "tensor/ops/embedding.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

using Kind = Input::Kind;

// Returns a tensor of `shape` with elements f(position in row-major order, coordinates).
template <class F>
Tensor build(const Shape& shape, F f) {
  Tensor y = Tensor::empty(shape, DType::f64);
  Shape at = Shape::filled(shape.ndim(), 0);
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t rest = i;
    for (int d = shape.ndim() - 1; d >= 0; --d) {
      at[d] = rest % shape[d];
      rest /= shape[d];
    }
    y.data<double>()[i] = f(at);
  }
  return y;
}

double element(const Tensor& x, std::initializer_list<int64_t> at) {
  int64_t i = 0;
  int d = 0;
  for (int64_t a : at) i = i * x.dim(d++) + a;
  return x.data<double>()[i];
}

Tensor embedding_oracle(const Tensors& t) {
  Shape shape = t[1].shape();
  shape.push_back(t[0].dim(1));
  const int64_t cols = t[0].dim(1);
  Tensor y = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < y.numel(); ++i)
    y.data<double>()[i] = t[0].data<double>()[t[1].data<int64_t>()[i / cols] * cols + i % cols];
  return y;
}

// Some rows of `rows`, ascending.
Tensor ascending_rows(int64_t rows, int64_t picks) {
  Tensor index = Tensor::empty({picks}, DType::i64);
  for (int64_t i = 0; i < picks; ++i) index.data<int64_t>()[i] = rows * i / picks;
  return index;
}

Var with_rows(const Tensor& table, const Tensor& rows) {
  Tensor changed = table.clone();
  put_rows(rows, ascending_rows(table.dim(0), rows.dim(0)), changed);
  return changed;
}

Var embedding_in_shards(const Var& table, const Tensor& index, int count) {
  std::vector<Var> values;
  for (int s = 0; s < count; ++s) {
    const IndexShard shard = shard_of(table.dim(0), s, count);
    values.push_back(embedding(slice(table, 0, shard.first, shard.first + shard.count), index, shard));
  }
  return reduce_from_shards(std::move(values), {.count = count});
}

const OpRows shape_rows({
    {.name = "reshape",
     .inputs = {{{3, 4, 5}}},
     .op =
         [](const Vars& v) {
           return reshape(v[0], {4, -1});
         },
     .oracle =
         [](const Tensors& t) {
           return t[0].reshape({4, 15});
         },
     .errors = {{[] {
                   reshape(Var(Tensor::zeros({2, 3})), {4, -1});
                 },
                 "[reshape] 6 elements of shape (2, 3)"},
                {[] {
                   reshape(Var(Tensor::zeros({2, 3})), {-1, -1});
                 },
                 "[reshape] only one extent can be -1"}}},
    {.name = "permute",
     .inputs = {{{2, 3, 4}}},
     .op =
         [](const Vars& v) {
           return permute(v[0], {2, 0, -2});
         },
     .oracle =
         [](const Tensors& t) {
           return build({t[0].dim(2), t[0].dim(0), t[0].dim(1)}, [&](const Shape& i) {
             return element(t[0], {i[1], i[2], i[0]});
           });
         },
     .large = {{{31, 40, 50}}},
     .errors = {{[] {
                   permute(Var(Tensor::zeros({2, 3})), {0, 0});
                 },
                 "[permute] dimension 0 is named twice"},
                {[] {
                   permute(Var(Tensor::zeros({2, 3})), {0});
                 },
                 "[permute] 1 dimensions given"}}},
    {.name = "transpose",
     .inputs = {{{2, 3, 4}}},
     .op = [](const Vars& v) { return transpose(v[0], 0, -1); },
     .oracle =
         [](const Tensors& t) {
           return build({4, 3, 2}, [&](const Shape& i) { return element(t[0], {i[2], i[1], i[0]}); });
         },
     .errors = {{[] {
                   transpose(Var(Tensor::zeros({2, 3})), 0, 2);
                 },
                 "[transpose] dimension 2 is out of range"}}},
    {.name = "slice",
     .inputs = {{{3, 11, 2}}},
     .op = [](const Vars& v) { return slice(v[0], 1, 2, 10, 3); },
     .oracle =
         [](const Tensors& t) {
           return build({t[0].dim(0), 3, t[0].dim(2)}, [&](const Shape& i) {
             return element(t[0], {i[0], 2 + 3 * i[1], i[2]});
           });
         },
     .large = {{{40, 90, 33}}},
     .errors = {{[] {
                   slice(Var(Tensor::zeros({2, 3})), 1, 2, 4);
                 },
                 "[slice] [2, 4) is not inside dimension 1"},
                {[] {
                   slice(Var(Tensor::zeros({2, 3})), 1, 0, 3, 0);
                 },
                 "[slice] step must be positive"}}},
    {.name = "split",
     .inputs = {{{3, 9}}},
     .op =
         [](const Vars& v) {
           const std::vector<Var> parts = split(v[0], {4, 1, 4}, -1);  // the middle part is not used
           return parts[0] * parts[2] + parts[0];
         },
     .oracle =
         [](const Tensors& t) {
           return build({3, 4}, [&](const Shape& i) {
             const double a = element(t[0], {i[0], i[1]});
             return a * element(t[0], {i[0], 5 + i[1]}) + a;
           });
         },
     .errors = {{[] {
                   split(Var(Tensor::zeros({2, 3})), {2, 2}, 1);
                 },
                 "[split] the parts have 4 elements together"}}},
    {.name = "expand",
     .inputs = {{{3, 1, 4}}},
     .op =
         [](const Vars& v) {
           return expand(v[0], {2, 3, 5, 4});
         },
     .oracle =
         [](const Tensors& t) {
           return build({2, 3, 5, 4}, [&](const Shape& i) { return element(t[0], {i[1], 0, i[3]}); });
         },
     .errors = {{[] {
                   expand(Var(Tensor::zeros({2, 3})), {2, 4});
                 },
                 "[expand] shapes (2, 3) and (2, 4) do not broadcast"},
                {[] {
                   expand(Var(Tensor::zeros({2, 3})), {3});
                 },
                 "[expand] shape (2, 3) does not expand to (3,)"}}},
    {.name = "concat",
     .inputs = {{{2, 3, 4}}, {{2, 1, 4}}, {{2, 5, 4}}},
     .op =
         [](const Vars& v) {
           return concat({v[0], v[1], v[2], v[0]}, 1);
         },
     .oracle =
         [](const Tensors& t) {
           return build({2, 12, 4}, [&](const Shape& i) {
             const int64_t j = i[1];
             const int part = j < 3 ? 0 : j < 4 ? 1 : j < 9 ? 2 : 0;
             return element(t[static_cast<size_t>(part)], {i[0],
                                                           j < 3   ? j
                                                           : j < 4 ? j - 3
                                                           : j < 9 ? j - 4
                                                                   : j - 9,
                                                           i[2]});
           });
         },
     .errors = {{[] { concat(std::vector<Var>{}, 0); }, "[concat] nothing to join"},
                {[] {
                   concat({Var(Tensor::zeros({2, 3})), Var(Tensor::zeros({3, 3}))}, 1);
                 },
                 "[concat] shapes (2, 3) and (3, 3) may differ in dimension 1 only"}}},
    {.name = "pad",
     .inputs = {{{2, 3}}},
     .op =
         [](const Vars& v) {
           return pad(v[0], {1, 0}, {0, 2}, 0.5);
         },
     .oracle =
         [](const Tensors& t) {
           return build({3, 5}, [&](const Shape& i) {
             return i[0] < 1 || i[1] > 2 ? 0.5 : element(t[0], {i[0] - 1, i[1]});
           });
         },
     .errors = {{[] {
                   pad(Var(Tensor::zeros({2, 3})), {1}, {1});
                 },
                 "[pad] 1 and 1 widths given for shape (2, 3)"},
                {[] { pad(Var(Tensor::zeros({2})), {-1}, {1}); }, "[pad] widths must not be negative"}}},
    {.name = "gather",
     .inputs = {{{3, 5, 2}}, {{3, 90, 2}, Kind::index, 5}},
     .op = [](const Vars& v) { return gather(v[0], 1, v[1].value()); },
     .oracle =
         [](const Tensors& t) {
           return build(t[1].shape(), [&](const Shape& i) {
             const int64_t v = t[1].data<int64_t>()[(i[0] * t[1].dim(1) + i[1]) * t[1].dim(2) + i[2]];
             return element(t[0], {i[0], v, i[2]});
           });
         },
     .large = {{{7, 31, 45}}, {{7, 4100, 45}, Kind::index, 31}},
     .errors = {{[] {
                   gather(Var(Tensor::zeros({2, 3})), 1, Tensor::zeros({3, 3}, DType::i64));
                 },
                 "[gather] the index, (3, 3), must have the extents of x, (2, 3), except in dimension 1"},
                {[] {
                   gather(Var(Tensor::zeros({2, 3})), 1, Tensor::full({2, 1}, 3, DType::i64));
                 },
                 "[gather] index 3 at position 0 of shape (2, 1) is outside [0, 3)"}}},
    {.name = "embedding",
     .inputs = {{{11, 19}}, {{4, 40}, Kind::index, 7}},
     .op = [](const Vars& v) { return embedding(v[0], v[1].value()); },
     .oracle = embedding_oracle,
     .large = {{{65, 200}}, {{3, 3001}, Kind::index, 60}},
     .errors = {{[] {
                   embedding(Var(Tensor::zeros({4, 3})), Tensor::full({2}, -1, DType::i32));
                 },
                 "[embedding] index -1 at position 0 of shape (2,) is outside [0, 4)"},
                {[] {
                   embedding(Var(Tensor::zeros({4, 3})), Tensor::zeros({2}));
                 },
                 "[embedding] indices must be int32 or int64, got float32"},
                {[] { embedding(Var(Tensor::zeros({4})), Tensor::zeros({2}, DType::i32)); },
                 "[embedding] the table must be (rows, columns)"}}},
    {.name = "embedding/shards",
     .inputs = {{{11, 19}}, {{4, 40}, Kind::index, 7}},
     .op = [](const Vars& v) { return embedding_in_shards(v[0], v[1].value(), 3); },
     .oracle = embedding_oracle,
     .large = {{{65, 200}}, {{3, 3001}, Kind::index, 60}},
     .errors = {{[] {
                   embedding(Var(Tensor::zeros({4, 3})), Tensor::full({2}, 9, DType::i32), {2, 4, 9});
                 },
                 "[embedding] index 9 at position 0 of shape (2,) is outside [0, 9)"},
                {[] {
                   embedding(Var(Tensor::zeros({4, 3})), Tensor::zeros({2}, DType::i32), {2, 3, 9});
                 },
                 "[embedding] a shard of 3 rows has a table of shape (4, 3)"},
                {[] {
                   embedding(Var(Tensor::zeros({4, 3})), Tensor::zeros({2}, DType::i32), {6, 4, 9});
                 },
                 "[embedding] rows [6, 10) are no shard of 9"}}},
    {.name = "put_rows",
     .inputs = {{{11, 19}, Kind::normal, 0, false}, {{7, 19}, Kind::normal, 0, false}},
     .op = [](const Vars& v) { return with_rows(v[0].value(), v[1].value()); },
     .oracle =
         [](const Tensors& t) {
           const Tensor picks = ascending_rows(t[0].dim(0), t[1].dim(0));
           return build(t[0].shape(), [&](const Shape& i) {
             const auto rows = picks.span<int64_t>();
             const auto found = std::find(rows.begin(), rows.end(), i[0]);
             return found == rows.end() ? element(t[0], {i[0], i[1]}) : element(t[1], {found - rows.begin(), i[1]});
           });
         },
     .large = {{{6500, 20}, Kind::normal, 0, false}, {{3100, 20}, Kind::normal, 0, false}},
     .errors = {{[] {
                   Tensor table = Tensor::zeros({4, 3});
                   put_rows(Tensor::zeros({2, 3}), Tensor::from(std::vector<int64_t>{2, 2}, {2}), table);
                 },
                 "[put_rows] the index must ascend, but has 2 after 2 at position 1"},
                {[] {
                   Tensor table = Tensor::zeros({4, 3});
                   put_rows(Tensor::zeros({2, 4}), Tensor::from(std::vector<int64_t>{2, 3}, {2}), table);
                 },
                 "[put_rows] rows float32 of shape (2, 4) and an index of shape (2,) do not fit a table float32 of "
                 "shape (4, 3)"},
                {[] {
                   Tensor table = Tensor::zeros({4, 3});
                   put_rows(Tensor::zeros({1, 3}), Tensor::full({1}, 4, DType::i64), table);
                 },
                 "[put_rows] index 4 at position 0 of shape (1,) is outside [0, 4)"}},
     .differentiable = false},
    {.name = "shards",
     .inputs = {{{5, 7, 6}}, {{5, 7, 6}}, {{5, 7, 6}}, {{5, 7, 6}}},
     .op =
         [](const Vars& v) {
           const Shards shards{.count = 3};
           std::vector<Var> values = copy_to_shards(v[0], shards);
           for (size_t s = 0; s < values.size(); ++s) values[s] = values[s] * v[s + 1];
           return reduce_from_shards(std::move(values), shards);
         },
     .oracle =
         [](const Tensors& t) {
           Tensor y = Tensor::empty(t[0].shape(), DType::f64);
           for (int64_t i = 0; i < y.numel(); ++i)
             y.data<double>()[i] =
                 t[0].data<double>()[i] * (t[1].data<double>()[i] + t[2].data<double>()[i] + t[3].data<double>()[i]);
           return y;
         },
     .errors = {{[] { reduce_from_shards({Tensor::zeros({2})}, {.count = 2}); }, "[shards] 2 values expected, got 1"}}},
    {.name = "shards/gathered",
     .inputs = {{{5, 7, 6}}, {{5, 3, 6}}},
     .op =
         [](const Vars& v) {
           return gather_from_shards({v[0], v[1]}, 1, {v[0].dim(1), v[1].dim(1)}, {.count = 2});
         },
     .oracle =
         [](const Tensors& t) {
           return concat(std::vector<Tensor>{t[0], t[1]}, 1);
         }},
});

}  // namespace
}  // namespace elinvar::test
