#include "tensor/ops/embedding_bag.h"

#include <algorithm>
#include <numeric>

#include "tensor/graph.h"
#include "tensor/op_check.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/index.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

// Returns the indices as checked_index() does.
Tensor checked_places(const char* op, const Tensor& index, const Bags& bags, int64_t rows) {
  check(!bags.widths.empty() && std::ranges::all_of(bags.widths, [](int64_t width) { return width >= 1; }),
        "[{}] bags must have at least one place each", op);
  check(index.ndim() >= 1 && index.dim(-1) == bags.places(), "[{}] indices (.., {}) expected for {} bags, got shape {}",
        op, bags.places(), bags.count(), to_string(index.shape()));
  return checked_index(op, index, rows, kNoId);
}

int64_t number_of_bags(const Tensor& index, const Bags& bags) { return index.numel() / bags.places() * bags.count(); }

// Calls f(bag, first place, its width) for each bag of all samples.
template <class F>
void each_bag(const Tensor& index, const Bags& bags, const F& f) {
  for (int64_t place = 0, bag = 0; place < index.numel();)
    for (const int64_t width : bags.widths) {
      f(bag++, place, width);
      place += width;
    }
}

// The ids of each bag: those of bag i are list[start[i]] .. list[start[i + 1] - 1].
std::vector<Tensor> ids_of_bags(const Tensor& index, const Bags& bags) {
  Tensor list = Tensor::zeros({index.numel()}, DType::i64),
         start = Tensor::zeros({number_of_bags(index, bags) + 1}, DType::i64);
  const int64_t* v = index.data<int64_t>();
  int64_t n = 0;
  each_bag(index, bags, [&](int64_t bag, int64_t first, int64_t width) {
    for (int64_t place = first; place < first + width; ++place)
      if (v[place] != kNoId) list.data<int64_t>()[n++] = v[place];
    start.data<int64_t>()[bag + 1] = n;
  });
  return {list, start};
}

// The bag of each place in `order`.
std::vector<Tensor> bags_at(const Tensor& index, const Tensor& order, const Bags& bags) {
  Tensor at = Tensor::empty({index.numel()}, DType::i64), list = Tensor::empty({index.numel()}, DType::i64);
  each_bag(index, bags,
           [&](int64_t bag, int64_t first, int64_t width) { std::fill_n(at.data<int64_t>() + first, width, bag); });
  for (int64_t i = 0; i < index.numel(); ++i) list.data<int64_t>()[i] = at.data<int64_t>()[order.data<int64_t>()[i]];
  return {list};
}

// The divisor of each bag's sum (bags, 1): the number of its ids, but at least 1.
std::vector<Tensor> divisors(const Tensor& index, const Bags& bags, DType dtype) {
  Tensor counts = Tensor::empty({number_of_bags(index, bags), 1}, DType::f64);
  const int64_t* v = index.data<int64_t>();
  each_bag(index, bags, [&](int64_t bag, int64_t first, int64_t width) {
    const auto n = std::count_if(v + first, v + first + width, [](int64_t id) { return id != kNoId; });
    counts.data<double>()[bag] = static_cast<double>(std::max<int64_t>(n, 1));
  });
  return {counts.to(dtype)};
}

Tensor divided_by_counts(const Tensor& rows, const Tensor& checked, const Bags& bags) {
  const Tensor counts =
      derived({checked}, [bags, dtype = rows.dtype()](auto from) { return divisors(from[0], bags, dtype); })[0];
  return div(rows, counts.to(rows.device()));
}

Tensor embedding_bag_of(const Tensor& input, const Tensor& index, const Bags& bags) {
  check_float("embedding_bag", input);
  check(input.ndim() == 2, "[embedding_bag] the table must be (rows, columns), its shape is {}",
        to_string(input.shape()));
  const Tensor table = input.to_contiguous(), checked = checked_places("embedding_bag", index, bags, table.dim(0));
  const std::vector<Tensor> ids = derived({checked}, [bags](auto from) { return ids_of_bags(from[0], bags); });
  const Tensor list = ids[0].to(table.device()), start = ids[1].to(table.device());
  const int64_t rows = number_of_bags(index, bags), cols = table.dim(1);
  Tensor y = Tensor::empty({rows, cols}, table.dtype(), table.device());
  on(table.device(), [&](auto& stream) {
    sum_listed_rows(stream, ListedRowsArgs{in(table), in(list), in(start), out(y), list.numel(), rows, cols});
  });
  if (bags.mode == BagMode::mean) y = divided_by_counts(y, checked, bags);
  Shape shape = index.shape();
  shape[shape.ndim() - 1] = bags.count();
  shape.push_back(cols);
  return y.reshape(shape);
}

Tensor embedding_bag_backward_of(const Tensor& gradient, const Tensor& index, const Bags& bags, int64_t rows) {
  check_float("embedding_bag_backward", gradient);
  const Tensor checked = checked_places("embedding_bag_backward", index, bags, rows);
  const int64_t cols = gradient.dim(-1), count = number_of_bags(index, bags);
  check(gradient.numel() == count * cols,
        "[embedding_bag_backward] a gradient of shape {} does not fit indices of shape {} with {} bags",
        to_string(gradient.shape()), to_string(index.shape()), bags.count());
  Tensor dy = gradient.to_contiguous().reshape({count, cols});
  if (bags.mode == BagMode::mean) dy = divided_by_counts(dy, checked, bags);
  // Places without an id are the occurrences of one more row, which is not computed.
  const Tensor targets = derived({checked}, [rows](auto from) {
    Tensor all = Tensor::empty(from[0].shape(), DType::i64);
    std::ranges::replace_copy(from[0].template span<int64_t>(), all.data<int64_t>(), kNoId, rows);
    return std::vector{all};
  })[0];
  const Occurrences found = occurrences(targets, rows + 1);
  const Tensor list =
      derived({checked, found.order}, [bags](auto from) { return bags_at(from[0], from[1], bags); })[0].to(dy.device());
  const Tensor start = found.start.to(dy.device());
  Tensor dtable = Tensor::empty({rows, cols}, dy.dtype(), dy.device());
  on(dy.device(), [&](auto& stream) {
    sum_listed_rows(stream, ListedRowsArgs{in(dy), in(list), in(start), out(dtable), list.numel(), rows, cols});
  });
  return dtable;
}

const Op kEmbeddingBag("embedding_bag(table, index, bags) -> y", embedding_bag_of);
const Op kEmbeddingBagBackward("embedding_bag_backward(dy, index, bags, rows) -> dtable", embedding_bag_backward_of);

}  // namespace

int64_t Bags::places() const { return std::accumulate(widths.begin(), widths.end(), int64_t{0}); }

Tensor embedding_bag(const Tensor& table, const Tensor& index, const Bags& bags) {
  return kEmbeddingBag(table, index, bags);
}

Tensor embedding_bag_backward(const Tensor& dy, const Tensor& index, const Bags& bags, int64_t rows) {
  return kEmbeddingBagBackward(dy, index, bags, rows);
}

}  // namespace elinvar
