// Bags of rows of a table.
#include "tensor/ops/embedding_bag.h"

#include <algorithm>
#include <numeric>

#include "autograd/shape.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

using Kind = Input::Kind;

// Indices that are one less, so that 0 stands for no id.
Tensor ids_of(const Var& picks) {
  Tensor ids = picks.value().to(Device{}).to(DType::i64).clone();
  for (int64_t& id : ids.span<int64_t>()) --id;
  return ids;
}

Var bags_of(const Vars& v, const Bags& bags) { return embedding_bag(v[0], ids_of(v[1]), bags); }

Tensor bag_oracle(const Tensors& t, const Bags& bags) {
  const int64_t places = bags.places(), samples = t[1].numel() / places, cols = t[0].dim(1);
  Tensor y = Tensor::zeros({samples, bags.count(), cols}, DType::f64);
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t k = 0, place = n * places; k < bags.count(); ++k) {
      double* const row = y.data<double>() + (n * bags.count() + k) * cols;
      double ids = 0;
      for (int64_t end = place + bags.widths[static_cast<size_t>(k)]; place < end; ++place) {
        const int64_t id = t[1].data<int64_t>()[place] - 1;
        if (id < 0) continue;
        for (int64_t c = 0; c < cols; ++c) row[c] += t[0].data<double>()[id * cols + c];
        ++ids;
      }
      if (bags.mode == BagMode::mean)
        for (int64_t c = 0; c < cols; ++c) row[c] /= std::max(ids, 1.0);
    }
  return y;
}

// The same bags with two more places each, without ids: one before the others and one after them.
Var in_wider_bags(const Vars& v, const Bags& bags) {
  const Tensor ids = ids_of(v[1]);
  Bags wider = bags;
  for (int64_t& width : wider.widths) width += 2;
  std::vector<int64_t> padded;
  for (auto from = ids.span<int64_t>().begin(); from != ids.span<int64_t>().end();)
    for (const int64_t width : bags.widths) {
      padded.push_back(-1);
      padded.insert(padded.end(), from, from + width);
      padded.push_back(-1);
      from += width;
    }
  return embedding_bag(v[0], Tensor::from(padded, {ids.numel() / bags.places(), wider.places()}), wider);
}

// Bags of one to 200 places, of which a third have no id.
OpRow row(const std::string& name, BagMode mode) {
  const Bags few{{1, 4, 5}, mode}, many{{1, 100, 200}, mode};
  const auto bags_for = [=](const Shape& picks) { return picks[picks.ndim() - 1] == few.places() ? few : many; };
  return {.name = "embedding_bag/" + name,
          .inputs = {{{11, 19}}, {{9, 10}, Kind::index, 3}},
          .op = [=](const Vars& v) { return bags_of(v, bags_for(v[1].shape())); },
          .oracle = [=](const Tensors& t) { return bag_oracle(t, bags_for(t[1].shape())); },
          .large = {{{65, 200}}, {{15, 301}, Kind::index, 60}},
          .zero_filled = [=](const Vars& v) { return in_wider_bags(v, bags_for(v[1].shape())); }};
}

void bag(const Shape& table, const Tensor& index, std::vector<int64_t> widths) {
  embedding_bag(Tensor::zeros(table), index, {std::move(widths), BagMode::sum});
}

OpRow with_errors(OpRow row) {
  row.errors = {
      {[] {
         bag({4, 3}, Tensor::full({2, 3}, -2, DType::i32), {1, 2});
       },
       "[embedding_bag] index -2 at position 0 of shape (2, 3) is outside [0, 4)"},
      {[] {
         bag({4, 3}, Tensor::full({2, 3}, 4, DType::i64), {3});
       },
       "[embedding_bag] index 4 at position 0 of shape (2, 3) is outside [0, 4)"},
      {[] {
         bag({4, 3}, Tensor::zeros({2, 3}, DType::i32), {2, 2});
       },
       "[embedding_bag] indices (.., 4) expected for 2 bags, got shape (2, 3)"},
      {[] {
         bag({4, 3}, Tensor::zeros({2, 3}, DType::i32), {3, 0});
       },
       "[embedding_bag] bags must have at least one place each"},
      {[] {
         bag({4, 3}, Tensor::zeros({2, 3}), {3});
       },
       "[embedding_bag] indices must be int32 or int64, got float32"},
      {[] {
         bag({4}, Tensor::zeros({2, 3}, DType::i32), {3});
       },
       "[embedding_bag] the table must be (rows, columns)"},
      {[] {
         embedding_bag_backward(Tensor::zeros({2, 3}), Tensor::zeros({2, 3}, DType::i32), {{1, 2}, BagMode::sum}, 4);
       },
       "[embedding_bag_backward] a gradient of shape (2, 3) does not fit indices of shape (2, 3) with 2 bags"}};
  return row;
}

const OpRows bag_rows({with_errors(row("sum", BagMode::sum)), row("mean", BagMode::mean)});

}  // namespace
}  // namespace elinvar::test
