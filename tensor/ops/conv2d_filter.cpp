// The filter gradient of a convolution: dw (o, (kh, kw, c)) = sum over output positions k of dy[k, o] * x[pixel of k,
// c]. A is dy, packed panel by panel; B is the images themselves, row k being the pixel under the tap; a tap's missing
// positions are skipped. Groups of chunks are independent (rule 8), so threads share the positions and a last pass adds
// the groups left to right.
#include <numeric>

#include "tensor/numerics.h"
#include "tensor/op_check.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/pack.h"
#include "tensor/scratch.h"

namespace elinvar {
namespace {

// Columns of dw that lie side by side in the image too: the channels under one tap, or under a row of taps.
struct ColumnBlock {
  int64_t dy, dx;  // offset of its first pixel
  int64_t at;      // its first column in a row of dw
  int64_t width;
};

template <class T>
class FilterProduct {
 public:
  FilterProduct(const ConvGeometry& g, const T* dy, const T* x, T* dw, int64_t group, std::vector<ColumnBlock> blocks)
      : g_(g),
        dy_(dy + group * filters()),
        x_(x + group * channels()),
        dw_(dw + group * filters() * row()),
        blocks_(std::move(blocks)),
        extent_(tile_extent(T{})),
        positions_(g.n * g.oh * g.ow) {}

  void run(CpuStream& stream) const {
    const int64_t span = kChunk * kGroup;
    const int64_t groups = (positions_ + span - 1) / span;
    const int64_t filter_blocks = (filters() + kFilterBlock - 1) / kFilterBlock;
    int64_t column_parts = 1;
    const auto block_count = static_cast<int64_t>(blocks_.size());
    while (column_parts < block_count && groups * filter_blocks * column_parts < 2 * stream.threads()) ++column_parts;

    Scratch<T> sums(groups > 1 ? groups * filters() * row() : 1);
    const auto sum_of = [&](int64_t group) { return groups > 1 ? sums.data() + group * filters() * row() : dw_; };
    stream.parallel_for(groups * filter_blocks * column_parts, 1, [&](int64_t begin, int64_t end) {
      Workspace work(*this);
      for (int64_t item = begin; item < end; ++item) {
        const int64_t part = item % column_parts, f = item / column_parts % filter_blocks,
                      group = item / column_parts / filter_blocks;
        block(work, sum_of(group), group * span, std::min(positions_, (group + 1) * span), f * kFilterBlock,
              std::min(filters(), (f + 1) * kFilterBlock), block_count * part / column_parts,
              block_count * (part + 1) / column_parts);
      }
    });
    if (groups == 1) return;
    stream.parallel_for(filters() * row(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T sum = T{0};
        for (int64_t group = 0; group < groups; ++group) sum = sum + sum_of(group)[i];
        dw_[i] = sum;
      }
    });
  }

 private:
  static constexpr int64_t kFilterBlock = 128;

  int64_t channels() const { return g_.c / g_.groups; }
  int64_t filters() const { return g_.o / g_.groups; }
  int64_t row() const { return g_.kh * g_.kw * channels(); }

  struct Workspace {
    explicit Workspace(const FilterProduct& p)
        : panels(kChunk * (kFilterBlock + kMostTileRows)),
          strip(kChunk * p.extent_.cols()),
          runs(kChunk + 1),
          packed_runs(kChunk + 1) {}
    Scratch<T> panels, strip;
    Scratch<Run<T>> runs, packed_runs;
  };

  // dw of filters [f0, f1) and column blocks [b0, b1) from positions [k_begin, k_end), one group of chunks.
  void block(const Workspace& work, T* sum, int64_t k_begin, int64_t k_end, int64_t f0, int64_t f1, int64_t b0,
             int64_t b1) const {
    const int64_t tile_rows = extent_.rows;
    for (int64_t k0 = k_begin; k0 < k_end; k0 += kChunk) {
      const int64_t k1 = std::min(k_end, k0 + kChunk);
      for (int64_t f = f0; f < f1; f += tile_rows)
        pack_panel(dy_ + k0 * g_.o + f, g_.o, k1 - k0, static_cast<int>(std::min(tile_rows, f1 - f)), extent_.rows,
                   work.panels.data() + (f - f0) * kChunk);
      for (int64_t b = b0; b < b1; ++b) {
        const ColumnBlock& columns = blocks_[static_cast<size_t>(b)];
        const int64_t run_count = make_runs(columns, k0, k1, work.panels.data(), work.runs.data());
        const Strips strips(columns.width, extent_);
        for (int64_t s = 0; s < strips.count; ++s) {
          Tile<T> tile{.runs = work.runs.data(),
                       .run_count = run_count,
                       .rows = 0,
                       .cols = static_cast<int>(strips.exist(s)),
                       .c_rows = nullptr,
                       .b = x_ + strips.begin(s),
                       .b_step = g_.stride_w * g_.c,
                       .add = k0 != k_begin};
          if (worth_packing(f1 - f0)) pack(work, strips.exist(s), strips.width(s), tile);
          for (int64_t f = f0; f < f1; f += tile_rows) {
            T* c_rows[kMostTileRows];
            tile.rows = static_cast<int>(std::min(tile_rows, f1 - f));
            for (int r = 0; r < tile.rows; ++r) c_rows[r] = sum + (f + r) * row();
            tile.c_rows = c_rows;
            tile.c_offset = columns.at + strips.begin(s);
            tile.a_offset = (f - f0) * kChunk;
            multiply_tile(tile);
          }
        }
      }
    }
  }

  // Rows of pixels far apart fall into the same few cache sets; many tiles repay a copy side by side.
  bool worth_packing(int64_t filters_here) const {
    return g_.stride_w * g_.c * static_cast<int64_t>(sizeof(T)) >= 1024 && filters_here >= 4 * extent_.rows;
  }

  void pack(const Workspace& work, int64_t cols, int64_t width, Tile<T>& tile) const {
    for (int64_t i = 0; i < tile.run_count; ++i) {
      Run<T> run = tile.runs[i];
      const int64_t k = (run.a - work.panels.data()) / extent_.rows;
      for (int64_t j = 0; j < run.length; ++j)
        std::copy_n(tile.b + run.b_first + j * tile.b_step, cols, work.strip.data() + (k + j) * width);
      run.b_first = 0;
      run.b_row = k;
      work.packed_runs[i] = run;
    }
    tile.runs = work.packed_runs.data();
    tile.b = work.strip.data();
    tile.b_step = width;
  }

  // Positions [k0, k1) under which the block's pixel exists, row of output pixels by row.
  int64_t make_runs(const ColumnBlock& columns, int64_t k0, int64_t k1, const T* panels, Run<T>* runs) const {
    // ow * stride + dx lies in [0, w) for ow in [first, last).
    const int64_t first = columns.dx >= 0 ? 0 : (-columns.dx + g_.stride_w - 1) / g_.stride_w;
    const int64_t last = columns.dx >= g_.w ? 0 : std::min(g_.ow, (g_.w - 1 - columns.dx) / g_.stride_w + 1);
    int64_t count = 0;
    for (int64_t k = k0; k < k1;) {
      const int64_t ow = k % g_.ow, oh = k / g_.ow % g_.oh, n = k / (g_.ow * g_.oh);
      const int64_t row_end = std::min(k1, k - ow + g_.ow);
      const int64_t from = std::max(k, k - ow + first), to = std::min(row_end, k - ow + last);
      const int64_t y = oh * g_.stride_h + columns.dy;
      if (y >= 0 && y < g_.h && from < to) {
        const int64_t x = (from - (k - ow)) * g_.stride_w + columns.dx;
        const int64_t b = ((n * g_.h + y) * g_.w + x) * g_.c;
        const T* a = panels + (from - k0) * extent_.rows;
        Run<T>* previous = count > 0 ? &runs[count - 1] : nullptr;
        if (previous && previous->a + previous->length * extent_.rows == a &&
            previous->b_first + previous->length * g_.stride_w * g_.c == b)
          previous->length += to - from;
        else runs[count++] = Run<T>{.a = a, .b_first = b, .length = to - from};
      }
      k = row_end;
    }
    return count;
  }

  const ConvGeometry& g_;
  const T *dy_, *x_;
  T* dw_;
  std::vector<ColumnBlock> blocks_;
  TileExtent extent_;
  int64_t positions_;
};

template <class T>
void grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  const ConvGeometry& g = args.g;
  const int64_t channels = g.c / g.groups;
  std::vector<ColumnBlock> blocks;
  for (int64_t kh = 0; kh < g.kh; ++kh)
    for (int64_t kw = 0; kw < g.kw; ++kw)
      blocks.push_back(
          {kh * g.dilation_h - g.pad_h, kw * g.dilation_w - g.pad_w, (kh * g.kw + kw) * channels, channels});
  for (int64_t group = 0; group < g.groups; ++group)
    FilterProduct<T>(g, args.dy.as<T>(), args.x.as<T>(), args.dw.as<T>(), group, blocks).run(stream);
}

// A first layer's few channels fill no vector, but a row of taps does: with the padding written out, every tap exists
// and the channels under a row of taps lie side by side.
template <class T>
void grad_filter_few_channels(CpuStream& stream, const ConvGradFilterArgs& args) {
  ConvGeometry g = args.g;
  const int64_t h = g.h + 2 * g.pad_h, w = g.w + 2 * g.pad_w;
  Scratch<T> padded(g.n * h * w * g.c);
  const T* x = args.x.as<T>();
  stream.parallel_for(g.n * h, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t n = r / h, y = r % h - g.pad_h;
      T* out = padded.data() + r * w * g.c;
      if (y < 0 || y >= g.h) {
        std::fill_n(out, w * g.c, T{0});
        continue;
      }
      out = std::fill_n(out, g.pad_w * g.c, T{0});
      out = std::copy_n(x + (n * g.h + y) * g.w * g.c, g.w * g.c, out);
      std::fill_n(out, g.pad_w * g.c, T{0});
    }
  });
  g.h = h, g.w = w, g.pad_h = g.pad_w = 0;
  std::vector<ColumnBlock> blocks;
  for (int64_t kh = 0; kh < g.kh; ++kh) blocks.push_back({kh * g.dilation_h, 0, kh * g.kw * g.c, g.kw * g.c});
  FilterProduct<T>(g, args.dy.as<T>(), padded.data(), args.dw.as<T>(), 0, blocks).run(stream);
}

}  // namespace

void conv2d_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  visit_float(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (is_depthwise(args.g)) depthwise_grad_filter<T>(stream, args);
    else if (args.g.groups == 1 && args.g.c < 16 && args.g.dilation_w == 1) grad_filter_few_channels<T>(stream, args);
    else grad_filter<T>(stream, args);
  });
}

}  // namespace elinvar
