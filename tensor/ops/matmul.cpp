#include "tensor/ops/matmul.h"

#include <algorithm>

#include "tensor/numerics.h"
#include "tensor/op_check.h"
#include "tensor/pack.h"
#include "tensor/scratch.h"

namespace elinvar {
namespace {

constexpr int64_t kRowBlock = 64;          // rows of C that share a pass over B
constexpr int64_t kColumnBlock = 256;      // columns whose chunk of B stays in the second-level cache
constexpr int64_t kPackedBytes = 8 << 20;  // packed B at a time, in the last-level cache

// One product whose B is packed strip by strip: strip s at packed + k * strips.begin(s), rows of strips.width(s).
template <class T>
struct Product {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_col;
  const T* packed;
  T* c;
  int64_t c_row;
  const T* bias;
  TileExtent extent;
  Strips strips;

  // Rows [i0, i1) of the strips [s0, s1). A chunk's partial sums go to C in the first group and to `group` in later
  // ones, which is then added to C (rule 8).
  void block(int64_t i0, int64_t i1, int64_t s0, int64_t s1) const {
    const int64_t j0 = strips.begin(s0), cols = strips.begin(s1) - j0;
    const bool many_groups = k > kChunk * kGroup;
    Scratch<T> group(many_groups ? (i1 - i0) * cols : 1);
    Scratch<T> panel(a_col == 1 ? 1 : kChunk * extent.rows);
    for (int64_t k0 = 0; k0 < std::max<int64_t>(k, 1); k0 += kChunk) {
      const int64_t length = std::min(kChunk, k - k0);
      const bool first_group = k0 < kChunk * kGroup, first_of_group = k0 % (kChunk * kGroup) == 0;
      const bool last_of_group = k0 + kChunk >= k || (k0 + kChunk) % (kChunk * kGroup) == 0;
      const bool last = k0 + kChunk >= k;
      for (int64_t i = i0; i < i1; i += extent.rows) {
        const int rows = static_cast<int>(std::min<int64_t>(extent.rows, i1 - i));
        const T* a_rows[kMostTileRows];
        T* c_rows[kMostTileRows];
        for (int r = 0; r < extent.rows; ++r) {
          const int64_t row = i + std::min(r, rows - 1);
          a_rows[r] = a + row * a_row + k0;
          c_rows[r] = first_group ? c + row * c_row : group.data() + (row - i0) * cols - j0;
        }
        Run<T> run{.b_row = k0, .length = length};
        if (a_col == 1) {
          run.a_rows = a_rows;
        } else {
          pack_panel(a + i + k0 * a_col, a_col, length, rows, extent.rows, panel.data());
          run.a = panel.data();
        }
        for (int64_t s = s0; s < s1; ++s) {
          multiply_tile(Tile<T>{.runs = &run,
                                .run_count = 1,
                                .rows = rows,
                                .cols = static_cast<int>(strips.exist(s)),
                                .c_rows = c_rows,
                                .c_offset = strips.begin(s),
                                .b = packed + k * strips.begin(s),
                                .b_step = strips.width(s),
                                .add = !first_of_group,
                                .bias = last && first_group && bias ? bias + strips.begin(s) : nullptr});
        }
      }
      if (!first_group && last_of_group) {
        for (int64_t i = i0; i < i1; ++i) {
          T* row = c + i * c_row + j0;
          const T* sum = group.data() + (i - i0) * cols;
          for (int64_t j = 0; j < std::min(cols, n - j0); ++j) row[j] = row[j] + sum[j];
          if (last && bias)
            for (int64_t j = 0; j < std::min(cols, n - j0); ++j) row[j] = row[j] + bias[j0 + j];
        }
      }
    }
  }
};

template <class T>
void multiply(CpuStream& stream, const MatmulArgs& args, int64_t batch) {
  invariant(args.a.col == 1 || args.a.row == 1, "rows or columns of A have steps of 1");
  const TileExtent extent = tile_extent(T{});
  const T* a = static_cast<const T*>(args.a.data) + batch * args.a.batch;
  const T* b = static_cast<const T*>(args.b.data) + batch * args.b.batch;
  T* c = static_cast<T*>(args.c) + batch * args.c_batch;
  const T* bias = static_cast<const T*>(args.bias);

  // Columns go in pieces whose packed B stays in the last-level cache.
  const int64_t fit = kPackedBytes / (static_cast<int64_t>(sizeof(T)) * std::max<int64_t>(args.k, 1));
  const int64_t piece = std::max<int64_t>(extent.cols(), fit / extent.cols() * extent.cols());
  Scratch<T> packed(args.k * (std::min(piece, args.n) + extent.lanes));
  for (int64_t j0 = 0; j0 < args.n; j0 += piece) {
    const int64_t n = std::min(piece, args.n - j0);
    const Product<T> product{.m = args.m,
                             .n = n,
                             .k = args.k,
                             .a = a,
                             .a_row = args.a.row,
                             .a_col = args.a.col,
                             .packed = packed.data(),
                             .c = c + j0,
                             .c_row = args.c_row,
                             .bias = bias ? bias + j0 : nullptr,
                             .extent = extent,
                             .strips = Strips(n, extent)};
    const Strips& strips = product.strips;
    const int64_t pieces_of_k = (args.k + kChunk - 1) / kChunk;
    stream.parallel_for(strips.count * pieces_of_k, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t s = item / pieces_of_k, k0 = item % pieces_of_k * kChunk;
        pack_strip(b + k0 * args.b.row + (j0 + strips.begin(s)) * args.b.col, args.b.row, args.b.col,
                   std::min(kChunk, args.k - k0), strips.exist(s), strips.width(s),
                   packed.data() + args.k * strips.begin(s) + k0 * strips.width(s));
      }
    });
    const int64_t strips_a_block = std::max<int64_t>(1, kColumnBlock / extent.cols());
    const int64_t column_blocks = (strips.count + strips_a_block - 1) / strips_a_block;
    int64_t rows_a_block = kRowBlock;
    while (rows_a_block > extent.rows &&
           (args.m + rows_a_block - 1) / rows_a_block * column_blocks < 4 * stream.threads())
      rows_a_block /= 2;
    const int64_t row_blocks = (args.m + rows_a_block - 1) / rows_a_block;
    stream.parallel_for(row_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t i0 = item / column_blocks * rows_a_block, s0 = item % column_blocks * strips_a_block;
        product.block(i0, std::min(args.m, i0 + rows_a_block), s0, std::min(strips.count, s0 + strips_a_block));
      }
    });
  }
}

// The last two dimensions, one of them with steps of 1. The stride of a dimension of one element means nothing, so
// there it is chosen.
MatrixIn matrix(const Tensor& t, int64_t batch_step) {
  int64_t row = t.strides()[t.ndim() - 2], col = t.strides()[t.ndim() - 1];
  if (t.dim(-1) <= 1) col = 1;
  else if (t.dim(-2) <= 1) row = 1;
  return {t.raw(), row, col, batch_step};
}

// A view whose matrices can be read in place, or a copy.
Tensor readable(const Tensor& t) {
  const MatrixIn view = matrix(t, 0);
  return view.col == 1 || view.row == 1 ? t : t.to_contiguous();
}

// The leading dimensions of both operands as one batch; copies the operand whose batch is not evenly spaced.
MatrixIn as_batch(Tensor& t, const Shape& leading) {
  Shape full = leading;
  full.push_back(t.dim(-2));
  full.push_back(t.dim(-1));
  t = t.expand(full);
  const int lead = leading.ndim();
  bool even = true;
  for (int d = lead - 2; d >= 0; --d)
    even = even && (leading[d] == 1 || t.strides()[d] == t.strides()[d + 1] * leading[d + 1]);
  if (!even) t = t.to_contiguous();
  return matrix(t, lead == 0 ? 0 : t.strides()[lead - 1]);
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

Tensor matmul(const Tensor& a_in, const Tensor& b_in, const Tensor& bias) {
  check_float("matmul", a_in);
  check_same_dtype("matmul", a_in, b_in);
  check(a_in.ndim() >= 2 && b_in.ndim() >= 2,
        "[matmul] matrices expected, shapes are {} and {}; add a dimension with unsqueeze", to_string(a_in.shape()),
        to_string(b_in.shape()));
  check(a_in.dim(-1) == b_in.dim(-2), "[matmul] inner extents must match, shapes are {} and {}",
        to_string(a_in.shape()), to_string(b_in.shape()));
  Tensor a = readable(a_in), b = readable(b_in);
  const int64_t n = b.dim(-1), k = a.dim(-1);
  if (bias.defined()) {
    check(bias.shape() == Shape{n} && bias.dtype() == a.dtype(), "[matmul] bias {} of {} does not fit {} columns of {}",
          to_string(bias.shape()), name_of(bias.dtype()), n, name_of(a.dtype()));
  }
  Shape a_lead = a.shape(), b_lead = b.shape();
  for (int i = 0; i < 2; ++i) a_lead.erase(a_lead.ndim() - 1), b_lead.erase(b_lead.ndim() - 1);
  const Shape lead = broadcast(a_lead, b_lead, "matmul");
  Shape shape = lead;
  shape.push_back(a.dim(-2));
  shape.push_back(n);
  Tensor c = Tensor::empty(shape, a.dtype(), a.device());
  if (c.numel() == 0) return c;

  const Tensor dense_bias = bias.defined() ? bias.to_contiguous() : bias;
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
                  .bias = bias.defined() ? dense_bias.raw() : nullptr};
  if (b.ndim() == 2 && a.contiguous()) {  // one tall product
    args.m = args.m * args.batch;
    args.batch = 1;
    args.a = {a.raw(), k, 1, 0};
    args.b = matrix(b, 0);
  } else {
    args.a = as_batch(a, lead);
    args.b = as_batch(b, lead);
  }
  on(a.device(), [&](auto& stream) { matmul(stream, args); });
  return c;
}

}  // namespace elinvar
