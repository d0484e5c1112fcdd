#include "autograd/shape.h"

#include <algorithm>
#include <numeric>

#include "autograd/precision.h"
#include "tensor/base/check.h"
#include "tensor/ops/concat.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/gather.h"
#include "tensor/ops/reduce.h"

namespace elinvar {

Var reshape(const Var& x, const Shape& shape) {
  Tensor y = x.value().reshape(shape);
  Origin origin;
  if (x.origin()) origin.compute = [of_x = x.origin()->compute, shape = y.shape()] { return of_x().reshape(shape); };
  return record(
      std::move(y), {x}, [from = x.shape()](const Tensor& dy) { return std::vector<Tensor>{dy.reshape(from)}; },
      std::move(origin));
}

Var permute(const Var& x, std::vector<int> dims) {
  Tensor y = x.value().permute(dims);
  std::vector<int> inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i)
    inverse[static_cast<size_t>(normalize_dim(dims[i], x.ndim(), "permute"))] = static_cast<int>(i);
  return record(std::move(y), {x},
                [inverse = std::move(inverse)](const Tensor& dy) { return std::vector<Tensor>{dy.permute(inverse)}; });
}

Var transpose(const Var& x, int a, int b) {
  return record(x.value().transpose(a, b), {x},
                [a, b](const Tensor& dy) { return std::vector<Tensor>{dy.transpose(a, b)}; });
}

Var slice(const Var& x, int dim, int64_t begin, int64_t end, int64_t step) {
  return record(x.value().slice(dim, begin, end, step), {x}, [=, shape = x.shape()](const Tensor& dy) {
    Tensor dx = Tensor::zeros(shape, dy.dtype(), dy.device());
    Tensor part = dx.slice(dim, begin, end, step);
    copy(dy, part);
    return std::vector<Tensor>{dx};
  });
}

// A node between x and its parts has one gradient tensor, which the first part with a gradient allocates. Each part
// writes its own region of it, and the node zeroes the regions of parts without a gradient.
std::vector<Var> split(const Var& x, std::vector<int64_t> extents, int dim) {
  const int d = normalize_dim(dim, x.ndim(), "split");
  const int64_t total = std::accumulate(extents.begin(), extents.end(), int64_t{0});
  check(total == x.dim(d), "[split] the parts have {} elements together, dimension {} of shape {} has {}", total, d,
        to_string(x.shape()), x.dim(d));

  struct Shared {
    Tensor dx;
    std::vector<Tensor> missing;  // regions of dx not written yet
  };
  const auto shared = std::make_shared<Shared>();
  const Var whole = record(x.value(), {x}, [shared](const Tensor& dx) {
    for (Tensor& place : shared->missing)
      if (place.defined()) fill(place, 0.0);
    *shared = {};
    return std::vector<Tensor>{dx};
  });

  std::vector<Var> parts;
  int64_t at = 0;
  for (size_t i = 0; i < extents.size(); at += extents[i++]) {
    const auto gradient = [shared, shape = x.shape(), extents, d, i](const Tensor& dy) {
      const bool first = !shared->dx.defined();
      if (first) {
        shared->dx = Tensor::empty(shape, dy.dtype(), dy.device());
        int64_t begin = 0;
        for (int64_t extent : extents) {
          shared->missing.push_back(shared->dx.slice(d, begin, begin + extent));
          begin += extent;
        }
      }
      copy(dy, shared->missing[i]);
      shared->missing[i] = {};
      return std::vector<Tensor>{first ? shared->dx : Tensor{}};
    };
    parts.push_back(record(x.value().slice(d, at, at + extents[i]), {whole}, gradient));
  }
  return parts;
}

Var expand(const Var& x, const Shape& shape) {
  return record(x.value().expand(shape), {x},
                [from = x.shape()](const Tensor& dy) { return std::vector<Tensor>{sum_to(dy, from)}; });
}

Var concat(std::vector<Var> parts, int dim) {
  std::vector<Tensor> values;
  std::vector<int64_t> extents;
  const bool wide = std::ranges::any_of(parts, [](const Var& part) { return part.dtype() != DType::bf16; });
  for (Var& part : parts) part = wide ? widened(part) : part;
  for (const Var& part : parts) values.push_back(part.value());
  Tensor y = concat(values, dim);
  for (const Tensor& value : values) extents.push_back(value.dim(dim));
  return record(std::move(y), std::move(parts), [dim, extents = std::move(extents)](const Tensor& dy) {
    std::vector<Tensor> grads;
    int64_t at = 0;
    for (int64_t extent : extents) {
      grads.push_back(dy.slice(dim, at, at + extent));
      at += extent;
    }
    return grads;
  });
}

Var pad(const Var& x, std::vector<int64_t> before, std::vector<int64_t> after, double value) {
  Tensor y = pad(x.value(), before, after, value);
  return record(std::move(y), {x}, [before = std::move(before), shape = x.shape()](Tensor dy) {
    for (int d = 0; d < shape.ndim(); ++d) {
      const int64_t first = before[static_cast<size_t>(d)];
      dy = dy.slice(d, first, first + shape[d]);
    }
    return std::vector<Tensor>{dy};
  });
}

Var gather(const Var& input, int dim, const Tensor& index) {
  const Var x = widened(input);
  return record(gather(x.value(), dim, index), {x}, [dim, index, extent = x.dim(dim)](const Tensor& dy) {
    return std::vector<Tensor>{gather_backward(dy, dim, index, extent)};
  });
}

Var embedding(const Var& table, const Tensor& index) {
  return record(embedding(table.value(), index), {table}, [index, rows = table.dim(0)](const Tensor& dy) {
    return std::vector<Tensor>{embedding_backward(dy, index, rows)};
  });
}

Var embedding(const Var& table, const Tensor& index, const IndexShard& shard) {
  return record(embedding_shard(table.value(), index, shard), {table}, [index, shard](const Tensor& dy) {
    return std::vector<Tensor>{embedding_shard_backward(dy, index, shard)};
  });
}

Var embedding(const Var& table, const Tensor& values, const Tensor& place) {
  return record(embedding(values, place), {table}, [place, places = values.dim(0)](const Tensor& dy) {
    return std::vector<Tensor>{embedding_backward(dy, place, places)};
  });
}

Var embedding_bag(const Var& table, const Tensor& index, const Bags& bags) {
  return embedding_bag(table, table.value(), index, bags);
}

Var embedding_bag(const Var& table, const Tensor& values, const Tensor& place, const Bags& bags) {
  return record(embedding_bag(values, place, bags), {table}, [=, rows = values.dim(0)](const Tensor& dy) {
    return std::vector<Tensor>{embedding_bag_backward(dy, place, bags, rows)};
  });
}

}  // namespace elinvar
