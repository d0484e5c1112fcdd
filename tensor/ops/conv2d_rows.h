#pragma once
// The product behind the forward pass and the input gradient of a convolution. Both write every position of one image
// tensor from the taps of another: position r of the target starts at a pixel (n, y0, x0) of the source, and tap t
// reads the source pixel (y0 + dy, x0 + dx) with all its channels. A tile is tile_rows positions by a strip of target
// channels; its runs are the taps that exist.
#include <algorithm>
#include <vector>

#include "tensor/numerics.h"
#include "tensor/scratch.h"
#include "tensor/stream.h"
#include "tensor/tile.h"

namespace elinvar {

struct Tap {
  int64_t k;       // nominal k of its first channel
  int64_t dy, dx;  // source pixel, relative to the position's
};

// A grid of target positions that share their taps: all of them in a forward pass, one for each phase of the stride in
// an input gradient. Position (n, a, b) is target pixel (a * step_y + first_y, b * step_x + first_x); its source pixel
// is (a * scale_y + shift_y, b * scale_x + shift_x).
struct PositionGrid {
  int64_t rows, cols;
  int64_t step_y, first_y, step_x, first_x;
  int64_t scale_y, shift_y, scale_x, shift_x;
  std::vector<Tap> taps;  // ascending in k

  // How far the taps reach: [dy_low, dy_high] by [dx_low, dx_high] around a position's source pixel.
  int64_t dy_low = 0, dy_high = 0, dx_low = 0, dx_high = 0;
  void set_taps(std::vector<Tap> all) {
    taps = std::move(all);
    if (taps.empty()) return;
    dy_low = dy_high = taps[0].dy;
    dx_low = dx_high = taps[0].dx;
    for (const Tap& tap : taps) {
      dy_low = std::min(dy_low, tap.dy), dy_high = std::max(dy_high, tap.dy);
      dx_low = std::min(dx_low, tap.dx), dx_high = std::max(dx_high, tap.dx);
    }
  }
};

template <class T>
struct TapProduct {
  const T* source;  // (images, source_h, source_w, source_c), channels [source_first, source_first + channels)
  int64_t images, source_h, source_w, source_c, source_first, channels;
  T* target;  // (images, target_h, target_w, target_c), channels from target_first on
  int64_t target_h, target_w, target_c, target_first;
  const T* packed;  // strip s at k_count * strips.begin(s): rows of strips.width(s) for each nominal k
  int64_t k_count;
  const T* bias;  // of the target's channels, or null
  TileExtent extent;
  Strips strips;
  const T* zeros;  // at least `channels` of them

  void run(CpuStream& stream, const PositionGrid& grid) const {
    constexpr int64_t kPositionBlock = 64, kColumnBlock = 256;
    const int64_t positions = images * grid.rows * grid.cols;
    const int64_t strips_a_block = std::max<int64_t>(1, kColumnBlock / extent.cols());
    const int64_t column_blocks = (strips.count + strips_a_block - 1) / strips_a_block;
    const int64_t position_blocks = (positions + kPositionBlock - 1) / kPositionBlock;
    const std::vector<Span> spans = spans_of(grid);
    stream.parallel_for(position_blocks * column_blocks, 1, [&](int64_t begin, int64_t end) {
      Scratch<Run<T>> runs(static_cast<int64_t>(grid.taps.size()) + 1);
      Scratch<const T*> rows((static_cast<int64_t>(grid.taps.size()) + 1) * kMostTileRows);
      Scratch<T> group(k_count > kChunk * kGroup ? kPositionBlock * strips.padded_columns() : 1);
      for (int64_t item = begin; item < end; ++item) {
        const int64_t s0 = item / position_blocks * strips_a_block, p0 = item % position_blocks * kPositionBlock;
        block(grid, spans, p0, std::min(positions, p0 + kPositionBlock), s0,
              std::min(strips.count, s0 + strips_a_block), runs.data(), rows.data(), group.data());
      }
    });
  }

 private:
  // Where a tile's positions read and write.
  struct TileRows {
    const T* origin[kMostTileRows];  // source pixel (y0, x0), maybe outside the image: an offset to add taps to
    int64_t y[kMostTileRows], x[kMostTileRows];
    T* target[kMostTileRows];
    int count;
    bool interior;  // every tap of every position exists
  };

  TileRows locate(const PositionGrid& grid, int64_t p, int64_t p_end) const {
    TileRows t;
    t.count = static_cast<int>(std::min<int64_t>(extent.rows, p_end - p));
    int64_t b = p % grid.cols, a = p / grid.cols % grid.rows, n = p / (grid.cols * grid.rows);
    int64_t y_low = INT64_MAX, y_high = INT64_MIN, x_low = INT64_MAX, x_high = INT64_MIN;
    for (int r = 0; r < kMostTileRows; ++r) {
      t.y[r] = a * grid.scale_y + grid.shift_y;
      t.x[r] = b * grid.scale_x + grid.shift_x;
      t.origin[r] = source + ((n * source_h + t.y[r]) * source_w + t.x[r]) * source_c + source_first;
      t.target[r] =
          target +
          ((n * target_h + a * grid.step_y + grid.first_y) * target_w + b * grid.step_x + grid.first_x) * target_c +
          target_first;
      y_low = std::min(y_low, t.y[r]), y_high = std::max(y_high, t.y[r]);
      x_low = std::min(x_low, t.x[r]), x_high = std::max(x_high, t.x[r]);
      if (r + 1 < t.count && ++b == grid.cols) {
        b = 0;
        if (++a == grid.rows) a = 0, ++n;
      }
    }
    t.interior = y_low + grid.dy_low >= 0 && y_high + grid.dy_high < source_h && x_low + grid.dx_low >= 0 &&
                 x_high + grid.dx_high < source_w;
    return t;
  }

  // Consecutive k that is consecutive in the source too, where every tap exists: the channels of one tap, or of taps
  // side by side.
  struct Span {
    int64_t k, offset, length;
  };

  std::vector<Span> spans_of(const PositionGrid& grid) const {
    std::vector<Span> spans;
    for (const Tap& tap : grid.taps) {
      const int64_t offset = (tap.dy * source_w + tap.dx) * source_c;
      if (!spans.empty() && spans.back().k + spans.back().length == tap.k &&
          spans.back().offset + spans.back().length == offset)
        spans.back().length += channels;
      else spans.push_back({tap.k, offset, channels});
    }
    return spans;
  }

  // The runs of nominal k in [k0, k1), and how many: of a tile all of whose taps exist, and of one at the border, where
  // a tap that exists for some positions only reads zeros for the others.
  int64_t interior_runs(const std::vector<Span>& spans, const TileRows& t, int64_t k0, int64_t k1, Run<T>* runs,
                        const T** rows) const {
    int64_t count = 0;
    for (const Span& span : spans) {
      const int64_t from = std::max(span.k, k0), to = std::min(span.k + span.length, k1);
      if (from >= to) continue;
      const int64_t offset = span.offset + (from - span.k);
      for (int r = 0; r < kMostTileRows; ++r) rows[r] = t.origin[r] + offset;
      runs[count++] = Run<T>{.a_rows = rows, .b_row = from, .length = to - from};
      rows += kMostTileRows;
    }
    return count;
  }

  int64_t border_runs(const PositionGrid& grid, const TileRows& t, int64_t k0, int64_t k1, Run<T>* runs,
                      const T** rows) const {
    int64_t count = 0;
    for (const Tap& tap : grid.taps) {
      const int64_t from = std::max(tap.k, k0), to = std::min(tap.k + channels, k1);
      if (from >= to) continue;
      const int64_t offset = (tap.dy * source_w + tap.dx) * source_c + (from - tap.k);
      bool any = false;
      for (int r = 0; r < extent.rows; ++r) {
        const bool inside = static_cast<uint64_t>(t.y[r] + tap.dy) < static_cast<uint64_t>(source_h) &&
                            static_cast<uint64_t>(t.x[r] + tap.dx) < static_cast<uint64_t>(source_w);
        rows[r] = inside ? t.origin[r] + offset : zeros;
        any = any || inside;
      }
      if (!any) continue;
      runs[count++] = Run<T>{.a_rows = rows, .b_row = from, .length = to - from};
      rows += kMostTileRows;
    }
    return count;
  }

  void block(const PositionGrid& grid, const std::vector<Span>& spans, int64_t p0, int64_t p1, int64_t s0, int64_t s1,
             Run<T>* runs, const T** rows, T* group) const {
    const int64_t j0 = strips.begin(s0), cols = strips.begin(s1) - j0;
    for (int64_t k0 = 0; k0 < k_count; k0 += kChunk) {
      const int64_t k1 = std::min(k_count, k0 + kChunk);
      const bool first_group = k0 < kChunk * kGroup, first_of_group = k0 % (kChunk * kGroup) == 0;
      const bool last_of_group = k1 == k_count || k1 % (kChunk * kGroup) == 0, last = k1 == k_count;
      for (int64_t p = p0; p < p1; p += extent.rows) {
        TileRows t = locate(grid, p, p1);
        const int64_t run_count =
            t.interior ? interior_runs(spans, t, k0, k1, runs, rows) : border_runs(grid, t, k0, k1, runs, rows);
        T* c_rows[kMostTileRows];
        for (int r = 0; r < extent.rows; ++r)
          c_rows[r] = first_group ? t.target[r] : group + (p - p0 + std::min(r, t.count - 1)) * cols - j0;
        for (int64_t s = s0; s < s1; ++s)
          multiply_tile(Tile<T>{.runs = runs,
                                .run_count = run_count,
                                .rows = t.count,
                                .cols = static_cast<int>(strips.exist(s)),
                                .c_rows = c_rows,
                                .c_offset = strips.begin(s),
                                .b = packed + k_count * strips.begin(s),
                                .b_step = strips.width(s),
                                .add = !first_of_group,
                                .bias = last && first_group && bias ? bias + strips.begin(s) : nullptr});
        if (first_group || !last_of_group) continue;
        for (int r = 0; r < t.count; ++r) {
          for (int64_t j = j0; j < std::min(j0 + cols, strips.columns); ++j) {
            t.target[r][j] = t.target[r][j] + c_rows[r][j];
            if (last && bias) t.target[r][j] = t.target[r][j] + bias[j];
          }
        }
      }
    }
  }
};

}  // namespace elinvar
