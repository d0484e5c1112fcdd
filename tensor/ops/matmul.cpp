#include "tensor/ops/matmul.h"

#include <algorithm>

#include "tensor/fast_product.h"
#include "tensor/op_check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/product.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

constexpr int64_t kPackedBytes = 16 << 20;  // size of the packed part of B, which stays in the last-level cache
constexpr int64_t kNearBytes = 4 << 20;     // if C fits into so many bytes, packed B takes at most as many too
constexpr int64_t kBytesInPlace = 512;      // nor if its rows are at most so far apart (kTilesInPlace)

// Multiplies few rows of A by a B whose columns are contiguous, as in a linear layer on few samples, where reading B is
// most of the work. A strip of B is packed one chunk at a time, and multiplied while it is in the core's own cache.
template <class T>
void multiply_few(CpuStream& stream, const MatrixRows<T>& rows, const T* b, int64_t b_col, int64_t n, int64_t k,
                  const Epilogue<T>& epilogue) {
  const TileExtent extent = tile_extent(T{}, n);
  const Strips strips(n, extent);
  const int64_t tiles = (rows.m + extent.rows - 1) / extent.rows, cols = extent.cols();
  stream.parallel_for(strips.count, 1, [&](int64_t begin, int64_t end) {
    Scratch<T> packed(std::min(k, chunk_length<T>()) * cols);
    Scratch<PartialOf<T>> groups(needs_buffer<T>(k) ? tiles * extent.rows * cols : 0);
    for (int64_t s = begin; s < end; ++s) {
      const int64_t j = strips.begin(s);
      for_each_chunk<T>(0, k, k, [&](const Chunk& chunk) {
        const Run run{.a = chunk.begin, .length = chunk.end - chunk.begin};
        pack_strip(b + chunk.begin + j * b_col, 1, b_col, run.length, strips.exist(s), strips.width(s), packed.data());
        auto place = rows.place(0);
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t row = t * extent.rows;
          const TileRows<T> at = rows.tile(place, extent.rows);
          PartialOf<T>* group_rows[kMostTileRows];
          if (!chunk.in_place)
            for (int r = 0; r < extent.rows; ++r) group_rows[r] = groups.data() + (row + r) * cols - j;
          Tile<T> tile{.runs = &run,
                       .run_count = 1,
                       .tile_rows = extent.rows,
                       .rows = at.count,
                       .cols = static_cast<int>(strips.exist(s)),
                       .a_rows = at.a,
                       .b = packed.data(),
                       .b_step = strips.width(s),
                       .c_offset = j};
          if constexpr (std::is_same_v<T, Pair>) tile.row_exponents = at.exponents;
          add_chunk(tile, chunk, at.c, group_rows, epilogue.at(j));
          multiply_tile(tile);
        }
      });
    }
  });
}

template <class T>
void multiply(CpuStream& stream, const MatmulArgs& args, int64_t batch) {
  invariant(args.a.col == 1 || args.a.row == 1, "rows or columns of A have steps of 1");
  const TileExtent extent = tile_extent(T{}, args.n);
  const T* b = static_cast<const T*>(args.b.data) + batch * args.b.batch;
  MatrixRows<T> rows{.a = static_cast<const T*>(args.a.data) + batch * args.a.batch,
                     .a_row = args.a.row,
                     .a_col = args.a.col,
                     .c = static_cast<ResultOf<T>*>(args.c) + batch * args.c_batch,
                     .c_row = args.c_row,
                     .m = args.m,
                     .whole = {{0, 0, args.k}}};
  Epilogue<T> epilogue{.bias = static_cast<const ResultOf<T>*>(args.bias)};
  if constexpr (std::is_same_v<T, Pair>) {
    rows.exponents = args.exponents.rows;
    epilogue.exponents = args.exponents.columns;
  }
  const std::span<const MatrixRows<T>> source(&rows, 1);
  if (args.b.col == 1 &&
      (args.m <= kTilesInPlace * extent.rows || args.b.row * static_cast<int64_t>(sizeof(T)) <= kBytesInPlace)) {
    Product<T>::in_place(b, args.b.row, Strips(args.n, extent), 0, args.k, args.k, epilogue).run(stream, source);
    return;
  }
  if (args.b.row == 1 && args.a.col == 1 && args.m <= kTilesInPlace * extent.rows) {
    multiply_few(stream, rows, b, args.b.col, args.n, args.k, epilogue);
    return;
  }
  // Columns, and groups of chunks if there are many, are processed in pieces whose packed B stays in the last-level
  // cache.
  int64_t k_piece = std::min(args.k, group_length<T>());
  const int64_t element = sizeof(T);
  if (!std::is_same_v<T, Pair> && !needs_buffer<T>(args.k) && args.m * args.n * element <= kNearBytes)
    k_piece = std::min(k_piece, kChunk * std::max<int64_t>(1, kNearBytes / (kChunk * args.n * element)));
  const int64_t fit = kPackedBytes / (element * std::max<int64_t>(k_piece, 1));
  const int64_t n_piece = std::max<int64_t>(extent.cols(), fit / extent.cols() * extent.cols());
  Scratch<T> packed(k_piece * (std::min(n_piece, args.n) + extent.lanes));
  auto* const c = rows.c;
  for (int64_t j0 = 0; j0 < args.n; j0 += n_piece) {
    const int64_t columns = std::min(n_piece, args.n - j0);
    const Strips strips(columns, tile_extent(T{}, columns));
    rows.c = c + j0;
    for (int64_t k0 = 0; k0 < std::max<int64_t>(args.k, 1); k0 += std::max<int64_t>(k_piece, 1)) {
      const int64_t k1 = std::min(k0 + k_piece, args.k);
      pack_b(stream, b, args.b.row, args.b.col, k0, k1, j0, strips, packed.data());
      Product<T>(packed.data(), strips, k0, k1, args.k, epilogue.at(j0)).run(stream, source);
    }
  }
}

// Returns the last two dimensions, one of which must have steps of 1. A dimension of one element may have any stride,
// so its step is chosen.
MatrixIn matrix(const Tensor& t, int64_t batch_step) {
  int64_t row = t.strides()[t.ndim() - 2], col = t.strides()[t.ndim() - 1];
  if (t.dim(-1) <= 1) col = 1;
  else if (t.dim(-2) <= 1) row = 1;
  return {t.raw(), row, col, batch_step};
}

// Returns a view whose matrices can be read in place, or a copy. Libraries do not take lines that share elements, such
// as those of an expanded row.
Tensor readable(const Tensor& t, Precision precision) {
  const MatrixIn view = matrix(t, 0);
  const bool by_rows = view.col == 1;
  if (!by_rows && view.row != 1) return t.to_contiguous();
  const int64_t lines = t.dim(by_rows ? -2 : -1), length = t.dim(by_rows ? -1 : -2);
  const bool apart = lines <= 1 || (by_rows ? view.row : view.col) >= length;
  return precision == Precision::portable || apart ? t : t.to_contiguous();
}

// Returns the leading dimensions of an operand as one batch; replaces `t` by a copy if its batch is not evenly spaced.
MatrixIn as_batch(Tensor& t, const Shape& leading) {
  Shape full = leading;
  full.push_back(t.dim(-2));
  full.push_back(t.dim(-1));
  t = t.expand(full);
  int64_t step = 0, within = 1;  // from matrix to matrix, and how many there are in the dimensions seen
  bool even = true;
  for (int d = leading.ndim() - 1; d >= 0; --d) {
    if (leading[d] == 1) continue;  // its stride may be any
    if (within == 1) step = t.strides()[d];
    even = even && t.strides()[d] == step * within;
    within *= leading[d];
  }
  if (even) return matrix(t, step);
  t = t.to_contiguous();
  return matrix(t, t.dim(-2) * t.dim(-1));
}

}  // namespace

void matmul(CpuStream& stream, const MatmulArgs& args) {
  visit_float(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool small = args.m * args.n * args.k < int64_t{1} << 21;
    if (args.batch > 1 && small) {
      stream.parallel_for(args.batch, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) multiply<T>(stream, args, i);
      });
    } else {
      for (int64_t i = 0; i < args.batch; ++i) multiply<T>(stream, args, i);
    }
  });
}

void exact_matmul(CpuStream& stream, const MatmulArgs& args) { multiply<Pair>(stream, args, 0); }

namespace {

// Returns the extents before the last two, broadcast.
Shape leading(const Tensor& a, const Tensor& b) {
  Shape a_lead = a.shape(), b_lead = b.shape();
  for (int i = 0; i < 2; ++i) a_lead.erase(a_lead.ndim() - 1), b_lead.erase(b_lead.ndim() - 1);
  return broadcast(a_lead, b_lead, "matmul");
}

Tensor matmul_of(const Tensor& a_given, const Tensor& b_given, const Tensor& bias, Precision precision, DType result) {
  const Tensor a_in = factor("matmul", a_given, precision), b_in = factor("matmul", b_given, precision);
  check_same_dtype("matmul", a_in, b_in);
  check(a_in.ndim() >= 2 && b_in.ndim() >= 2,
        "[matmul] matrices expected, shapes are {} and {}; add a dimension with unsqueeze", to_string(a_in.shape()),
        to_string(b_in.shape()));
  check(a_in.dim(-1) == b_in.dim(-2), "[matmul] inner extents must match, shapes are {} and {}",
        to_string(a_in.shape()), to_string(b_in.shape()));
  Tensor a = readable(a_in, precision), b = readable(b_in, precision);
  const int64_t n = b.dim(-1), k = a.dim(-1);
  const Shape lead = leading(a, b);
  Shape shape = lead;
  shape.push_back(a.dim(-2));
  shape.push_back(n);
  const bool rounds = precision == Precision::bf16 && result == DType::bf16;
  check(precision != Precision::bf16 || rounds || result == DType::f32,
        "[matmul] results of bf16 products are float32 or bfloat16, not {}", name_of(result));
  if (rounds && (k == 0 || (bias.defined() && (a.dim(-2) == 1 || n == 1)))) {  // the bias is added later, see below
    const Tensor seen = bias.defined() ? bias.to(DType::bf16).to(DType::f32) : bias;
    return matmul_of(a, b, seen, precision, DType::f32).to(DType::bf16);
  }
  Tensor c = Tensor::empty(shape, rounds ? DType::bf16 : computed_in(a.dtype()), a.device());
  Tensor dense_bias = bias.defined() ? operand("matmul", "the bias", bias, {n}, c) : bias;
  if (rounds && bias.defined()) dense_bias = dense_bias.to(DType::bf16);
  if (c.numel() == 0) return c;

  MatmulArgs args{.dtype = a.dtype(),
                  .batch = lead.numel(),
                  .m = a.dim(-2),
                  .n = n,
                  .k = k,
                  .a = {},
                  .b = {},
                  .c = c.raw(),
                  .c_row = n,
                  .c_batch = a.dim(-2) * n,
                  .bias = bias.defined() ? dense_bias.raw() : nullptr,
                  .result = c.dtype()};
  if (b.ndim() == 2 && a.contiguous()) {  // one tall product
    args.m = args.m * args.batch;
    args.batch = 1;
    args.a = {a.raw(), k, 1, 0};
    args.b = matrix(b, 0);
  } else {
    args.a = as_batch(a, lead);
    args.b = as_batch(b, lead);
  }
  if (precision == Precision::portable || k == 0) {
    args.dtype = c.dtype();  // a sum without terms has no factors
    on(a.device(), [&](auto& stream) { matmul(stream, args); });
  } else {
    const bool line = args.m == 1 || args.n == 1;  // for which a library may have no product that adds a bias
    if (line) args.bias = nullptr;
    on_tensor_cores(a.device(), [&](auto& stream) { fast_matmul(stream, args, precision); });
    if (line && bias.defined()) return add(c, dense_bias);
  }
  return c;
}

double flop_of(const Tensor& a, const Tensor& b, const Tensor&, Precision, DType) {
  return 2.0 * static_cast<double>(leading(a, b).numel() * a.dim(-2) * b.dim(-1)) * static_cast<double>(a.dim(-1));
}

const Op kMatmul("matmul(a, b, bias, precision, result) -> c", matmul_of, flop_of);

// Returns a factor as a matrix of (outer, k) pairs.
struct Side {
  int64_t outer, k;
  MatrixIn matrix;
  const Tensor* exponents;
};
Side side(const char* name, const Quantized& x) {
  check(x.q.dtype() == DType::i32 && x.q.ndim() == 3 && x.q.dim(1) == 1 && x.q.contiguous(),
        "[exact_matmul] {} must have pairs of shape (rows, 1, channels), got {}", name, to_string(x.q.shape()));
  if (x.pairs == Pairs::channels) return {x.q.dim(0), x.q.dim(2), {x.q.raw(), x.q.dim(2), 1, 0}, &x.rows};
  return {x.q.dim(2), x.q.dim(0), {x.q.raw(), 1, x.q.dim(2), 0}, &x.channels};
}

Tensor exact_matmul_of(const Quantized& a_in, const Quantized& b_in, const Tensor& bias_in) {
  const Side a = side("a", a_in), b = side("b", b_in);
  check(a.k == b.k, "[exact_matmul] inner extents must match, pairs are {} and {}", to_string(a_in.q.shape()),
        to_string(b_in.q.shape()));
  check(a_in.pairs == Pairs::channels || b_in.pairs == Pairs::rows,
        "[exact_matmul] pairs of rows of a need pairs of rows of b");
  check(2 * a.k <= kMostTerms, "[exact_matmul] sums of at most {} terms are exact, got {}; use smaller batches",
        kMostTerms, 2 * a.k);
  check_same_device("exact_matmul", a_in.q, b_in.q);
  Tensor c = Tensor::empty({a.outer, b.outer}, DType::f32, a_in.q.device());
  const Tensor bias = bias_in.defined() ? operand("exact_matmul", "the bias", bias_in, {b.outer}, c) : bias_in;
  if (c.numel() == 0) return c;
  const MatrixIn b_matrix{b.matrix.data, b.matrix.col, b.matrix.row, 0};  // (k, outer)
  const MatmulArgs args{
      .dtype = DType::f32,
      .batch = 1,
      .m = a.outer,
      .n = b.outer,
      .k = a.k,
      .a = a.matrix,
      .b = b_matrix,
      .c = c.raw(),
      .c_row = b.outer,
      .c_batch = 0,
      .bias = bias.defined() ? bias.raw() : nullptr,
      .exponents = {static_cast<const int32_t*>(a.exponents->raw()), static_cast<const int32_t*>(b.exponents->raw())}};
  on(c.device(), [&](auto& stream) { exact_matmul(stream, args); });
  return c;
}

double exact_flop_of(const Quantized& a, const Quantized& b, const Tensor&) {
  const Side x = side("a", a), y = side("b", b);
  return 4.0 * static_cast<double>(x.outer * y.outer) * static_cast<double>(x.k);
}

const Op kExactMatmul("exact_matmul(a, b, bias) -> c", exact_matmul_of, exact_flop_of);

}  // namespace

Tensor exact_matmul(const Quantized& a, const Quantized& b, const Tensor& bias) { return kExactMatmul(a, b, bias); }

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& bias, Precision precision, DType result) {
  return kMatmul(a, b, bias, precision, result);
}

}  // namespace elinvar
