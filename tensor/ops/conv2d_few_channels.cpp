// Both gradients read an image, dy or x, as rows in which the elements under a tap for neighbouring positions are
// adjacent. Padding is zeros (NUMERICS.md, rule 7).
#include "tensor/ops/conv2d_few_channels.h"

#include <algorithm>
#include <vector>

#include "tensor/carries.h"
#include "tensor/ops/conv2d_filter_sums.h"
#include "tensor/ops/conv2d_rows.h"
#include "tensor/pack.h"
#include "tensor/pair_tile.h"
#include "tensor/scratch.h"
#include "tensor/tile.h"

namespace elinvar {
namespace {

constexpr int64_t kNearBytes = 1 << 20;  // size of the transposed rows of dy, which stay in the second-level cache

// Transposed rows of dy: element (row, filter, output) at (row * filters + filter) * step + left + output.
struct Margins {
  int64_t left = 0, step;
  Margins(const ConvGeometry& g, const std::vector<Stretch>& phases) {
    int64_t end = g.ow;
    for (const Stretch& x : phases) {
      for (const AxisTap& tap : x.taps) {
        left = std::max(left, -(x.source + tap.offset));
        end = std::max(end, x.source + tap.offset + x.count);
      }
    }
    step = left + end;
  }
};

// Packs w (filter, tap, channel) as panels of tile_rows channels, [tap, filter][tile_rows] each.
template <class T>
void pack_filters(const ConvGeometry& g, const T* w, int tile_rows, T* panels) {
  const int64_t taps = g.kh * g.kw;
  for (int64_t c0 = 0; c0 < g.c; c0 += tile_rows) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t o = 0; o < g.o; ++o, panels += tile_rows)
        for (int64_t r = 0; r < tile_rows; ++r) panels[r] = c0 + r < g.c ? w[(o * taps + tap) * g.c + c0 + r] : T{0};
    }
  }
}

// The input gradient is dx (channels, pixels of a row) = w (channels, (tap, filter)) times dy ((tap, filter), outputs
// of a row), for the pixels of one phase of the stride at a time, so that neighbouring pixels have neighbouring
// sources. Rows of dy are transposed, with zeros on both sides for taps that reach beyond them; taps above and below
// are skipped.
template <class T>
class RowGradients {
 public:
  RowGradients(const ConvGradInputArgs& args, const std::vector<Stretch>& phases, const Margins& margins,
               const T* panels, TileExtent extent, int64_t rows)
      : g_(args.g),
        dy_(args.dy.as<T>()),
        dx_(args.dx.as<T>()),
        panels_(panels),
        phases_(phases),
        margins_(margins),
        extent_(extent),
        tiles_((g_.c + extent.rows - 1) / extent.rows),
        width_(g_.w + extent.cols()),
        sources_(rows * g_.o * margins.step),
        sums_(tiles_ * extent.rows * width_),
        groups_(needs_buffer<T>(k_count()) ? tiles_ * extent.rows * width_ : 0),
        runs_(static_cast<size_t>(g_.kh * g_.kw)) {
    std::fill_n(sources_.data(), rows * g_.o * margins.step, T{0});
  }

  // Computes rows [y0, y1) of image n.
  void run(int64_t n, const std::vector<Stretch>& ys, int64_t y0, int64_t y1) {
    first_ = std::max<int64_t>(0, y0 + g_.pad_h - (g_.kh - 1) * g_.dilation_h) / g_.stride_h;
    const int64_t last = std::min(g_.oh - 1, (y1 - 1 + g_.pad_h) / g_.stride_h);
    for (int64_t oh = first_; oh <= last; ++oh) transpose(n, oh);
    for (const Stretch& y : ys) {
      for (int64_t i = 0; i < y.count; ++i) {
        const int64_t row = y.target + i * y.target_step;
        if (row < y0 || row >= y1) continue;
        for (const Stretch& x : phases_) {
          multiply(y, y.source + i * y.source_step, x);
          T* pixel = dx_ + ((n * g_.h + row) * g_.w + x.target) * g_.c;
          for (int64_t j = 0; j < x.count; ++j, pixel += x.target_step * g_.c)
            for (int64_t c = 0; c < g_.c; ++c) pixel[c] = sums_[c * width_ + j];
        }
      }
    }
  }

 private:
  int64_t k_count() const { return g_.kh * g_.kw * g_.o; }

  void transpose(int64_t n, int64_t oh) {
    const T* from = dy_ + (n * g_.oh + oh) * g_.ow * g_.o;
    T* to = sources_.data() + (oh - first_) * g_.o * margins_.step + margins_.left;
    constexpr int64_t kAtOnce = 8;
    for (int64_t ow = 0; ow < g_.ow; ow += kAtOnce) {
      const T* pixels[kAtOnce];
      const int64_t count = std::min(kAtOnce, g_.ow - ow);
      for (int64_t i = 0; i < count; ++i) pixels[i] = from + (ow + i) * g_.o;
      interleave(pixels, count, g_.o, to + ow, margins_.step);
    }
  }

  // Computes the sums for the pixels of a row and a phase.
  void multiply(const Stretch& y, int64_t source, const Stretch& x) {
    const Strips strips(x.count, extent_);
    for_each_chunk<T>(0, k_count(), k_count(), [&](const Chunk& chunk) {
      int64_t run_count = 0;
      for (const AxisTap& v : y.taps) {
        for (const AxisTap& u : x.taps) {
          const int64_t k = (v.k * g_.kw + u.k) * g_.o, from = std::max(k, chunk.begin),
                        to = std::min(k + g_.o, chunk.end);
          if (from >= to) continue;
          const int64_t row = (source + v.offset - first_) * g_.o + from - k;
          runs_[static_cast<size_t>(run_count++)] = {
              .a = from, .b_first = row * margins_.step + margins_.left + x.source + u.offset, .length = to - from};
        }
      }
      for (int64_t t = 0; t < tiles_; ++t) {
        T *c_rows[kMostTileRows], *group_rows[kMostTileRows];
        for (int64_t r = 0; r < extent_.rows; ++r) {
          c_rows[r] = sums_.data() + (t * extent_.rows + r) * width_;
          group_rows[r] = groups_.data() + (t * extent_.rows + r) * width_;
        }
        Tile<T> tile{.runs = runs_.data(),
                     .run_count = run_count,
                     .tile_rows = extent_.rows,
                     .rows = static_cast<int>(std::min<int64_t>(extent_.rows, g_.c - t * extent_.rows)),
                     .cols = 0,
                     .panel = panels_ + t * k_count() * extent_.rows,
                     .b = nullptr,
                     .b_step = margins_.step};
        add_chunk(tile, chunk, c_rows, group_rows);
        for (int64_t s = 0; s < strips.count; ++s) {
          tile.cols = static_cast<int>(strips.exist(s));
          tile.b = sources_.data() + strips.begin(s);
          tile.c_offset = strips.begin(s);
          multiply_tile(tile);
        }
      }
    });
  }

  const ConvGeometry& g_;
  const T* dy_;
  T* dx_;
  const T* panels_;
  const std::vector<Stretch>& phases_;
  const Margins& margins_;
  TileExtent extent_;
  int64_t tiles_, width_, first_ = 0;
  Scratch<T> sources_, sums_, groups_;
  std::vector<Run> runs_;
};

// Images as rows that taps can read: row (n, y, phase, channel) has the channel of the pixels phase, phase + stride,
// ..; pixels and y count from the padding, which is zeros. So the elements under a tap along a row of outputs are
// adjacent.
template <class T>
class TapRows {
 public:
  TapRows(CpuStream& stream, const ConvGeometry& g, const T* x)
      : g_(g),
        height_((g.oh - 1) * g.stride_h + (g.kh - 1) * g.dilation_h + 1),
        length_(g.ow + (g.kw - 1) * g.dilation_w / g.stride_w),
        data_(g.n * height_ * g.stride_w * g.c * length_) {
    stream.parallel_for(g.n * height_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t y = row % height_ - g.pad_h;
        T* out = data_.data() + row * g.stride_w * g.c * length_;
        if (y < 0 || y >= g.h) {
          std::fill_n(out, g.stride_w * g.c * length_, T{0});
          continue;
        }
        const T* pixels = x + (row / height_ * g.h + y) * g.w * g.c;
        for (int64_t phase = 0; phase < g.stride_w; ++phase) {
          const int64_t left = phase - g.pad_w, from = std::clamp<int64_t>(up(-left), 0, length_),
                        to = std::clamp<int64_t>(up(g.w - left), from, length_);
          for (int64_t c = 0; c < g.c; ++c, out += length_) {
            std::fill_n(out, from, T{0});
            for (int64_t i = from; i < to; ++i) out[i] = pixels[(i * g.stride_w + left) * g.c + c];
            std::fill_n(out + to, length_ - to, T{0});
          }
        }
      }
    });
  }

  // The element under the tap and channel of column `column` of dw at the output position (n, oh, ow) is
  // tap(column)[position(n, oh, ow)].
  const T* tap(int64_t column) const {
    const int64_t c = column % g_.c, kw = column / g_.c % g_.kw, kh = column / (g_.c * g_.kw), x = kw * g_.dilation_w;
    return data_.data() + ((kh * g_.dilation_h * g_.stride_w + x % g_.stride_w) * g_.c + c) * length_ + x / g_.stride_w;
  }
  int64_t position(int64_t n, int64_t oh, int64_t ow) const {
    return (n * height_ + oh * g_.stride_h) * g_.stride_w * g_.c * length_ + ow;
  }

 private:
  int64_t up(int64_t pixels) const { return (pixels + g_.stride_w - 1) / g_.stride_w; }

  const ConvGeometry& g_;
  int64_t height_, length_;
  Scratch<T> data_;
};

}  // namespace

template <class T>
void few_channels_grad_input(CpuStream& stream, const ConvGradInputArgs& args) {
  const ConvGeometry& g = args.g;
  const std::vector<Stretch> phases = backward_phases(horizontal(g)), ys = backward_axis(vertical(g));
  const Margins margins(g, phases);
  const TileExtent extent = tile_extent(T{}, (g.w + g.stride_w - 1) / g.stride_w);
  Scratch<T> panels((g.c + extent.rows - 1) / extent.rows * extent.rows * g.kh * g.kw * g.o);
  pack_filters(g, args.w.as<T>(), extent.rows, panels.data());
  // Processes rows of images in portions whose rows of dy stay in cache.
  const int64_t reach = (g.kh - 1) * g.dilation_h / g.stride_h + 2,
                fit = kNearBytes / (g.o * margins.step * static_cast<int64_t>(sizeof(T))),
                rows = std::max(reach, fit - reach) * g.stride_h, blocks = (g.h + rows - 1) / rows;
  stream.parallel_for(g.n * blocks, 1, [&](int64_t begin, int64_t end) {
    RowGradients<T> gradients(args, phases, margins, panels.data(), extent, std::min(g.oh, rows / g.stride_h + reach));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t y = item % blocks * rows;
      gradients.run(item / blocks, ys, y, std::min(g.h, y + rows));
    }
  });
}

// A first layer's few channels fill no vector, but its filters do: dw transposed is taps times dy, whose layout in
// memory is that of a B.
template <class T>
void few_channels_grad_filter(CpuStream& stream, const ConvGradFilterArgs& args) {
  constexpr bool kPairs = std::is_same_v<T, Pair>;
  const ConvGeometry& g = args.g;
  const TapRows<T> taps(stream, g, args.x.as<T>());
  const Strips strips(g.o, tile_extent(T{}, g.o));
  const TileExtent extent = strips.extent;
  const int64_t positions = g.n * g.oh * g.ow, row = g.kh * g.kw * g.c, span = kChunk * kGroup,
                groups = std::max<int64_t>(1, (positions + span - 1) / span),
                tiles = (row + extent.rows - 1) / extent.rows;
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  Scratch<PartialOf<T>> sums(groups * row * g.o);
  const int64_t parts = groups < 4 * stream.threads() ? strips.count : 1;  // divides the filters, to keep threads busy
  stream.parallel_for(groups * parts, 1, [&](int64_t first, int64_t last) {
    std::vector<Run> runs;
    [[maybe_unused]] CarryPlan plan;
    for (int64_t item = first; item < last; ++item) {
      const int64_t group = item / parts, part = item % parts, k0 = group * span, s0 = strips.count * part / parts,
                    s1 = strips.count * (part + 1) / parts;
      for_each_chunk<T, kChunk>(0, std::min(span, positions - k0), span, [&](const Chunk& chunk) {
        const int64_t at = k0 + chunk.begin, end = k0 + chunk.end;
        runs.clear();
        for (int64_t k = at; k < end;) {  // one row of outputs at a time
          const int64_t ow = k % g.ow, oh = k / g.ow % g.oh, n = k / (g.ow * g.oh),
                        length = std::min(g.ow - ow, end - k);
          runs.push_back({.a = taps.position(n, oh, ow), .b_row = k - at, .length = length});
          k += length;
        }
        for (int64_t s = s0; s < s1; ++s) {
          Tile<T> tile{.runs = runs.data(),
                       .run_count = static_cast<int64_t>(runs.size()),
                       .tile_rows = extent.rows,
                       .rows = 0,
                       .cols = static_cast<int>(strips.exist(s)),
                       .b = args.dy.as<T>() + at * g.o + strips.begin(s),
                       .b_step = g.o,
                       .c_offset = strips.begin(s),
                       .add = !chunk.opens_group};
          if constexpr (kPairs) {
            if (tiles >= kPlannedTiles) plan.measure(tile), tile.carries = plan.carries();
          }
          for (int64_t t = 0; t < tiles; ++t) {
            const int64_t count = std::min<int64_t>(extent.rows, row - t * extent.rows);
            const T* a_rows[kMostTileRows];
            PartialOf<T>* c_rows[kMostTileRows];
            for (int r = 0; r < extent.rows; ++r) {
              const int64_t column = t * extent.rows + std::min<int64_t>(r, count - 1);
              a_rows[r] = taps.tap(column);
              c_rows[r] = sums.data() + (group * row + column) * g.o;
            }
            tile.rows = static_cast<int>(count);
            tile.a_rows = a_rows;
            if constexpr (kPairs) tile.sum_rows = c_rows, tile.finish = false;
            else tile.c_rows = c_rows;
            const int64_t fetched = end * g.o + (s * tiles + t) * kChunk * kLine;  // part of the next chunk
            const bool exists = fetched + kChunk * kLine <= std::min(positions, end + kChunk) * g.o;
            tile.next = exists ? args.dy.as<T>() + fetched : nullptr;
            tile.next_step = kLine;
            multiply_tile(tile);
          }
        }
      });
    }
  });
  add_groups(stream, sums.data(), groups, row * g.o, sums.data());
  auto* const dw = args.dw.as<ResultOf<T>>();
  if constexpr (kPairs) {
    Scratch<float> finished(row * g.o);
    stream.parallel_for(row, 16, [&](int64_t begin, int64_t end) {
      for (int64_t column = begin; column < end; ++column)
        finish_sums(sums.data() + column * g.o, g.o, args.exponents.columns[column % g.c], args.exponents.rows, nullptr,
                    finished.data() + column * g.o);
    });
    transpose(stream, finished.data(), row, g.o, dw);
  } else {
    transpose(stream, sums.data(), row, g.o, dw);
  }
}

template void few_channels_grad_input<float>(CpuStream&, const ConvGradInputArgs&);
template void few_channels_grad_input<double>(CpuStream&, const ConvGradInputArgs&);
template void few_channels_grad_filter<float>(CpuStream&, const ConvGradFilterArgs&);
template void few_channels_grad_filter<double>(CpuStream&, const ConvGradFilterArgs&);
template void few_channels_grad_filter<Pair>(CpuStream&, const ConvGradFilterArgs&);

}  // namespace elinvar
