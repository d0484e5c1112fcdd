#pragma once
// The product behind the filter gradient of a convolution: dw (o, (kh, kw, c)) = sum over output positions k of dy[k,
// o]
// * x[pixel of k, c]. A is dy, packed panel by panel. B is the images themselves (row k is the pixel under the tap, and
// a tap's missing positions are skipped), or a copy of them with their padding (row k is the pixels under a row of
// taps). Threads share items: one group of chunks times some filters and columns. A last pass adds the groups from left
// to right.
#include <algorithm>
#include <span>
#include <vector>

#include "tensor/carries.h"
#include "tensor/numerics.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/conv2d_filter_sums.h"
#include "tensor/ops/conv2d_rows.h"
#include "tensor/pack.h"
#include "tensor/pair_tile.h"
#include "tensor/scratch.h"
#include "tensor/stream.h"

namespace elinvar {

// Columns of dw that are also adjacent in the image: the channels under one tap, or under a row of taps.
struct ColumnBlock {
  int64_t kh, kw;  // first tap
  int64_t at;      // first column in a row of dw
  int64_t width;
};

// A strip of a column block's columns.
struct ColumnStrip {
  int64_t block;
  int64_t begin, exist, width;
};

template <class T>
class FilterProduct {
 public:
  FilterProduct(const ConvGeometry& g, const T* dy, const T* x, ResultOf<T>* dw, int64_t group,
                const Exponents& exponents)
      : g_(g),
        dy_(dy + group * filters()),
        x_(x + group * channels()),
        dw_(dw + group * filters() * row()),
        padded_(pads(g)),
        blocks_(column_blocks(g, padded_)),
        extent_(tile_extent(T{}, blocks_.front().width)),
        positions_(g.n * g.oh * g.ow),
        groups_(std::max<int64_t>(1, (positions_ + kSpan - 1) / kSpan)) {
    if constexpr (kPairs) {
      exponents_ = {exponents.rows + group * filters(), exponents.columns + group * channels()};
      for (int64_t j = 0; j < blocks_.front().width; ++j)
        column_exponents_.push_back(exponents_.columns[j % channels()]);
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const Strips strips(blocks_[b].width, extent_);
      for (int64_t s = 0; s < strips.count; ++s)
        strips_.push_back({static_cast<int64_t>(b), strips.begin(s), strips.exist(s), strips.width(s)});
    }
  }

  void run(CpuStream& stream) const {
    const bool direct = groups_ == 1 && (!kPairs || positions_ <= kChunk);
    Scratch<PartialOf<T>> sums(direct ? 1 : groups_ * filters() * row());
    const auto sum_of = [&](int64_t group) -> PartialOf<T>* {
      if constexpr (!kPairs) {
        if (direct) return dw_;
      }
      return direct ? nullptr : sums.data() + group * filters() * row();
    };
    const std::vector<Item> items = distribute(groups_, stream.threads());
    stream.parallel_for(items.back().work_end, 1, [&](int64_t begin, int64_t end) {
      Workspace work(*this);
      for (const Item& item : items) {
        const int64_t middle = (item.work_begin + item.work_end) / 2;
        if (middle >= begin && middle < end) compute(item, work, sum_of(item.group));
      }
    });
    if (groups_ == 1) return;  // the last chunk finished the sums
    if constexpr (kPairs) finish(stream, sums.data());
    else add_groups(stream, sums.data(), groups_, filters() * row(), dw_);
  }

 private:
  static constexpr bool kPairs = std::is_same_v<T, Pair>;
  static constexpr int64_t kSpan = kChunk * kGroup;
  static constexpr int64_t kFilterBlock = 256;  // their chunk of dy stays in the second-level cache; many repay packing
  static constexpr int64_t kShortRun = 16;      // runs that are shorter on average are joined by packing both sides
  static constexpr int64_t kFewChannels = 64;   // with fewer channels, short rows do not repay their own sets of taps
  static constexpr int64_t kCopy = 16;          // cost of copying an element, in multiply-adds
  static constexpr int64_t kWideRow = 8;        // pixels of a row, compared with which its padding is small

  // Whether rows of pixels are copied with their padding, so that the columns of all taps in a row are one block. This
  // is done if the columns of a tap do not fill a tile, or if rows are short.
  static bool pads(const ConvGeometry& g) {
    if (g.groups > 1 || g.stride_h * g.stride_w > 1 || g.dilation_w > 1 || g.ow < kWideRow) return false;
    return g.c < tile_extent(T{}, g.kw * g.c).cols() || (g.c <= kFewChannels && g.ow < kShortRun);
  }
  static std::vector<ColumnBlock> column_blocks(const ConvGeometry& g, bool padded) {
    const int64_t channels = g.c / g.groups, taps = padded ? g.kw : 1;
    std::vector<ColumnBlock> blocks;
    for (int64_t kh = 0; kh < g.kh; ++kh)
      for (int64_t kw = 0; kw < g.kw; kw += taps)
        blocks.push_back({kh, kw, (kh * g.kw + kw) * channels, taps * channels});
    return blocks;
  }

  int64_t channels() const { return g_.c / g_.groups; }
  int64_t filters() const { return g_.o / g_.groups; }
  int64_t row() const { return g_.kh * g_.kw * channels(); }

  // One group of chunks times filters [f0, f1) and strips_[s0, s1), and the work before and after it.
  struct Item {
    int64_t group, f0, f1;
    size_t s0, s1;
    int64_t work_begin, work_end;
  };

  // Returns the division that gives the busiest thread the least work.
  std::vector<Item> distribute(int64_t groups, int threads) const {
    const int64_t strips = std::ssize(strips_), panels = (filters() + extent_.rows - 1) / extent_.rows,
                  least = (filters() + kFilterBlock - 1) / kFilterBlock,
                  most = groups >= 16 * threads ? 1 : std::max<int64_t>(4, 4 * threads / groups);  // parts per group
    int64_t width = 0;
    for (const ColumnStrip& strip : strips_) width += strip.width;
    std::vector<Item> best = cut(groups, least, 1);
    int64_t share = largest_share(best, threads);
    for (int64_t f = least; f == least || (f <= panels && f <= most); ++f) {
      for (int64_t c = 1; c == 1 || (c <= strips && f * c <= most); ++c) {
        if (positions_ * work_of(filters(), width, f, c) >= share * threads) break;  // equal shares are no smaller
        std::vector<Item> items = cut(groups, f, c);
        const int64_t its_share = largest_share(items, threads);
        if (its_share < share) best = std::move(items), share = its_share;
      }
    }
    return best;
  }

  std::vector<Item> cut(int64_t groups, int64_t filter_parts, int64_t column_parts) const {
    const auto strips = static_cast<int64_t>(strips_.size());
    const int64_t panels = (filters() + extent_.rows - 1) / extent_.rows;
    std::vector<Item> all;
    int64_t work = 0;
    for (int64_t f = 0; f < filter_parts; ++f) {
      const int64_t f0 = panels * f / filter_parts * extent_.rows,
                    f1 = std::min(filters(), panels * (f + 1) / filter_parts * extent_.rows);
      for (int64_t c = 0; c < column_parts; ++c) {
        const auto s0 = static_cast<size_t>(strips * c / column_parts),
                   s1 = static_cast<size_t>(strips * (c + 1) / column_parts);
        int64_t width = 0;
        for (size_t s = s0; s < s1; ++s) width += strips_[s].width;
        for (int64_t group = 0; group < groups; ++group) {
          const int64_t k = std::min(kSpan, positions_ - group * kSpan);
          all.push_back({group, f0, f1, s0, s1, work, work + std::max<int64_t>(1, k * work_of(f1 - f0, width))});
          work = all.back().work_end;
        }
      }
    }
    return all;
  }

  // The cost of a position in multiply-adds, over all parts: each part packs dy again, and pixels are copied.
  int64_t work_of(int64_t filters_here, int64_t width, int64_t filter_parts = 1, int64_t column_parts = 1) const {
    const int64_t pixels = padded_ ? column_parts * g_.c : width;
    return filters_here * width + kCopy * (column_parts * filters_here + filter_parts * pixels);
  }

  // The work of the busiest thread, if each takes the items whose middle falls into its interval.
  static int64_t largest_share(const std::vector<Item>& items, int threads) {
    const int64_t all = items.back().work_end;
    std::vector<int64_t> shares(static_cast<size_t>(threads), 0);
    for (const Item& item : items) {
      const double middle = static_cast<double>(item.work_begin + item.work_end) / 2;
      const auto thread = static_cast<size_t>(middle * threads / static_cast<double>(all));
      shares[std::min(thread, shares.size() - 1)] += item.work_end - item.work_begin;
    }
    return *std::max_element(shares.begin(), shares.end());
  }

  struct Workspace {
    explicit Workspace(const FilterProduct& p)
        : panels((kFilterBlock / p.extent_.rows + 1) * p.step()),
          joined_panels((kFilterBlock / p.extent_.rows + 1) * panel_step(p.extent_)),
          strip(kChunk * p.extent_.cols()),
          pixels(p.padded_ ? p.most_padded_rows() * p.padded_row() : 0),
          runs(kChunk + 1),
          packed_runs(kChunk + 1) {}
    Scratch<T> panels, joined_panels, strip, pixels;
    std::vector<Run> runs, packed_runs;
    CarryPlan plan;      // of exact sums
    RowSquares squares;  // of dy over the current runs
  };

  // `sum` is null if exact sums are those of one chunk.
  void compute(const Item& item, Workspace& work, PartialOf<T>* sum) const {
    const int64_t tile_rows = extent_.rows, filters_here = item.f1 - item.f0,
                  here = std::min(kSpan, positions_ - item.group * kSpan);
    for_each_chunk<T, kChunk>(0, here, here, [&](const Chunk& chunk) {
      const int64_t k0 = item.group * kSpan + chunk.begin, length = chunk.end - chunk.begin;
      const Run whole{.length = length};
      if (!padded_) pack_runs(item, k0, std::span<const Run>(&whole, 1), work.panels.data());
      int64_t run_count = padded_ ? pad(item, k0, k0 + length, work) : 0;
      bool join = false;
      int64_t sharing = static_cast<int64_t>(item.s1 - item.s0);  // strips that share runs
      work.squares = {};
      for (size_t s = item.s0; s < item.s1; ++s) {
        const ColumnStrip& strip = strips_[s];
        const ColumnBlock& columns = blocks_[static_cast<size_t>(strip.block)];
        if (!padded_ && (s == item.s0 || strip.block != strips_[s - 1].block)) {
          run_count = make_runs(columns, k0, k0 + length, work.runs.data());
          sharing = 1;
          while (s + sharing < item.s1 && strips_[s + sharing].block == strip.block) ++sharing;
          work.squares = {};
          int64_t exist = 0;
          for (int64_t r = 0; r < run_count; ++r) exist += work.runs[static_cast<size_t>(r)].length;
          join = run_count > 1 && exist < kShortRun * run_count;
          if (join)
            pack_runs(item, k0, std::span<const Run>(work.runs.data(), static_cast<size_t>(run_count)),
                      work.joined_panels.data());
        }
        Tile<T> tile{.runs = work.runs.data(),
                     .run_count = run_count,
                     .tile_rows = extent_.rows,
                     .rows = 0,
                     .cols = static_cast<int>(strip.exist),
                     .b = (padded_ ? work.pixels.data() + columns.kh * g_.dilation_h * padded_row() : x_) + strip.begin,
                     .b_step = g_.stride_w * g_.c,
                     .c_offset = columns.at + strip.begin,
                     .add = !chunk.opens_group};
        if (join || (!padded_ && worth_packing(filters_here))) pack_strip_of(tile, strip.width, join, work);
        const auto take_rows = [&](int64_t f) {
          tile.rows = static_cast<int>(std::min(tile_rows, item.f1 - f));
          tile.panel = (join ? work.joined_panels : work.panels).data() + (f - item.f0) / tile_rows * step();
        };
        if constexpr (kPairs) {
          if (filters_here >= kPlannedTiles * tile_rows) {
            work.plan.measure(tile, sharing);
            work.plan.plan_for(work.squares, [&] {
              for (int64_t f = item.f0; f < item.f1; f += tile_rows) take_rows(f), work.squares.raise(tile);
            });
            tile.carries = work.plan.carries();
          }
        }
        for (int64_t f = item.f0; f < item.f1; f += tile_rows) {
          PartialOf<T>* sum_rows[kMostTileRows];
          ResultOf<T>* c_rows[kMostTileRows];
          take_rows(f);
          for (int r = 0; r < tile.rows; ++r)
            sum_rows[r] = sum ? sum + (f + r) * row() : nullptr, c_rows[r] = dw_ + (f + r) * row();
          if constexpr (kPairs) {
            tile.sum_rows = sum ? sum_rows : nullptr;
            tile.c_rows = c_rows;
            tile.finish = chunk.last && groups_ == 1;
            tile.row_exponents = exponents_.rows + f;
            tile.column_exponents = column_exponents_.data() + strip.begin;
          } else {
            tile.c_rows = sum_rows;
          }
          if (!padded_ && !join && run_count == 1) fetch_next(tile, item, s, chunk, (f - item.f0) / tile_rows);
          multiply_tile(tile);
        }
      }
    });
  }

  // Meanwhile tiles prefetch what is packed next, one line of each position: pixels of the next strip, or pixels of the
  // next chunk's first strip and the chunk's dy.
  void fetch_next(Tile<T>& tile, const Item& item, size_t s, const Chunk& chunk, int64_t t) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    const bool last = s + 1 == item.s1;
    const ColumnStrip& strip = strips_[last ? item.s0 : s + 1];
    const int64_t k = item.group * kSpan + (last ? chunk.end : chunk.begin), lines = (strip.exist + kLine - 1) / kLine;
    tile.next = nullptr;
    if (t < lines) {
      tile.next = x_ + k * g_.c + strip.begin + t * kLine;
      tile.next_step = g_.c;
    } else if (last && (t - lines) * kLine < item.f1 - item.f0) {
      tile.next = dy_ + k * g_.o + item.f0 + (t - lines) * kLine;
      tile.next_step = g_.o;
    }
  }

  // Packs dy of the item's filters at the positions k0 + run.a of `runs`, contiguously, as panels.
  void pack_runs(const Item& item, int64_t k0, std::span<const Run> runs, T* panels) const {
    for (const Run& run : runs) {
      pack_panels(dy_ + (k0 + run.a) * g_.o + item.f0, g_.o, run.length, item.f1 - item.f0, extent_.rows, panels,
                  panel_step(extent_));
      panels += run.length * extent_.rows;
    }
  }

  // Rows of pixels far apart fall into the same few cache sets; many tiles repay a contiguous copy.
  bool worth_packing(int64_t filters_here) const {
    return g_.stride_w * g_.c * static_cast<int64_t>(sizeof(T)) >= 1024 && filters_here >= 4 * extent_.rows;
  }

  // Packs the tile's B: the rows of its runs, contiguously. With `join` the runs become one, as in the panels.
  void pack_strip_of(Tile<T>& tile, int64_t width, bool join, Workspace& work) const {
    int64_t k = 0;
    for (int64_t i = 0; i < tile.run_count; ++i) {
      const Run& run = tile.runs[i];
      pack_strip(tile.b + run.b_first, tile.b_step, 1, run.length, tile.cols, width, work.strip.data() + k * width);
      work.packed_runs[static_cast<size_t>(i)] = {.a = run.a, .b_row = k, .length = run.length};
      k += run.length;
    }
    if (join) work.packed_runs[0] = {.length = k};
    tile.runs = work.packed_runs.data();
    tile.run_count = join ? 1 : tile.run_count;
    tile.b = work.strip.data();
    tile.b_step = width;
  }

  // Positions between consecutive rows of outputs if pixels have their padding, and the elements of such a row.
  int64_t padded_positions() const { return g_.w + 2 * g_.pad_w; }
  int64_t padded_row() const { return padded_positions() * g_.c; }
  // The most padded rows of a chunk: its rows of outputs and, for each image, those that taps reach beyond.
  int64_t most_padded_rows() const {
    const int64_t rows = kChunk / g_.ow + 2;
    return rows + (rows / g_.oh + 2) * (g_.kh - 1) * g_.dilation_h;
  }
  // The distance between panels, of filters or of padded filters.
  int64_t step() const {
    return padded_ ? (kChunk / g_.ow + 2) * padded_positions() * extent_.rows + 16 : panel_step(extent_);
  }

  // Copies the pixels under the positions [k0, k1), with their padding, and packs dy of the item's filters, with zeros
  // between rows of outputs. Makes one run per image and returns their number; b_first is for the first row of taps.
  int64_t pad(const Item& item, int64_t k0, int64_t k1, Workspace& work) const {
    const int64_t row = padded_row(), margin = g_.pad_w * g_.c, rows = extent_.rows,
                  panels = (item.f1 - item.f0 + rows - 1) / rows;
    int64_t run_count = 0, copied = 0, packed = 0;
    for (int64_t k = k0; k < k1;) {
      const int64_t n = k / (g_.ow * g_.oh), oh = k / g_.ow % g_.oh, end = std::min(k1, (n + 1) * g_.oh * g_.ow),
                    height = (end - 1) / g_.ow % g_.oh - oh + (g_.kh - 1) * g_.dilation_h + 1;
      for (int64_t i = 0; i < height; ++i) {
        const int64_t y = oh - g_.pad_h + i;
        T* out = work.pixels.data() + (copied + i) * row;
        if (y < 0 || y >= g_.h) {
          std::fill_n(out, row, T{0});
        } else {
          std::fill_n(out, margin, T{0});
          std::copy_n(x_ + (n * g_.h + y) * g_.w * g_.c, g_.w * g_.c, out + margin);
          std::fill_n(out + row - margin, margin, T{0});
        }
      }
      Run& run = work.runs[static_cast<size_t>(run_count++)];
      run = {.a = packed, .b_first = copied * row + k % g_.ow * g_.c};
      while (k < end) {
        const int64_t length = std::min(g_.ow - k % g_.ow, end - k);
        pack_panels(dy_ + k * g_.o + item.f0, g_.o, length, item.f1 - item.f0, extent_.rows,
                    work.panels.data() + packed * rows, step());
        packed += length;
        k += length;
        if (k == end) break;
        const int64_t between = padded_positions() - g_.ow;
        for (int64_t panel = 0; panel < panels; ++panel)
          std::fill_n(work.panels.data() + panel * step() + packed * rows, between * rows, T{0});
        packed += between;
      }
      run.length = packed - run.a;
      copied += height;
    }
    return run_count;
  }

  // Makes the runs of positions in [k0, k1) under which the block's pixels exist; a counts from k0.
  int64_t make_runs(const ColumnBlock& columns, int64_t k0, int64_t k1, Run* runs) const {
    int64_t count = 0;
    for_each_tap_row(g_, columns.kh, columns.kw, k0, k1, [&](int64_t k, int64_t pixel, int64_t length) {
      const int64_t a = k - k0, b = pixel * g_.c;
      Run* previous = count > 0 ? &runs[count - 1] : nullptr;
      if (previous && previous->a + previous->length == a &&
          previous->b_first + previous->length * g_.stride_w * g_.c == b)
        previous->length += length;
      else runs[count++] = {.a = a, .b_first = b, .length = length};
    });
    return count;
  }

  // dw from its exact sums over groups of positions.
  void finish(CpuStream& stream, double* sums) const {
    stream.parallel_for(filters(), std::max<int64_t>(1, 4096 / row()), [&](int64_t begin, int64_t end) {
      for (int64_t f = begin; f < end; ++f) {
        double* sum = sums + f * row();
        for (int64_t group = 1; group < groups_; ++group)
          for (int64_t j = 0; j < row(); ++j) sum[j] += sums[(group * filters() + f) * row() + j];
        for (int64_t j = 0; j < row(); j += channels())
          finish_sums(sum + j, channels(), exponents_.rows[f], exponents_.columns, nullptr, dw_ + f * row() + j);
      }
    });
  }

  const ConvGeometry& g_;
  const T *dy_, *x_;
  ResultOf<T>* dw_;
  Exponents exponents_ = {};
  std::vector<int32_t> column_exponents_;  // of a block's columns
  bool padded_;
  std::vector<ColumnBlock> blocks_;
  std::vector<ColumnStrip> strips_;
  TileExtent extent_;
  int64_t positions_;
  int64_t groups_;  // at least one, maybe empty
};

}  // namespace elinvar
