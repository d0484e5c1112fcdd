#pragma once
// The product behind matmul and behind a convolution's forward pass and input gradient: C = A B. Rows of A are read in
// place, by *spans* of consecutive k; B is packed strip by strip. Rows with the same spans form a source: a matrix is
// one source with a single span; a convolution has a source for each set of taps that falls into the image, with a span
// for each tap.
//
// Threads share the tiles of all sources, weighted by their work. Within a thread, blocks of tiles go through k chunk
// by chunk, so that a chunk of their rows of A stays in the second-level cache; it is packed if consecutive k are not
// adjacent in memory.
#include <algorithm>
#include <span>
#include <vector>

#include "tensor/carries.h"
#include "tensor/pack.h"
#include "tensor/scratch.h"
#include "tensor/stream.h"
#include "tensor/tile.h"

namespace elinvar {

inline constexpr int64_t kTilesInPlace = 2;  // B is not packed for so few tiles of rows of C

// A(i, k + q) = a[i][(offset + q) * a_step] for q < length. Spans are ascending in k; terms between them are zero.
struct Span {
  int64_t k, offset, length;
};

// Addresses of the rows of a tile, in A and in C. The tile has `count` rows; further addresses, up to the rows of the
// product's TileExtent, repeat the last.
template <class T>
struct TileRows {
  const T* a[kMostTileRows];
  ResultOf<T>* c[kMostTileRows];
  int count;
};
template <>
struct TileRows<Pair> {
  const Pair* a[kMostTileRows];
  float* c[kMostTileRows];
  int count;
  int32_t exponents[kMostTileRows];  // of the rows of A
};

// Plans for the carries of a thread's tiles. B is measured once for all blocks of a source.
class CarryPlans {
 public:
  explicit CarryPlans(int64_t count) : count_(count) {}

  // Begins a chunk of a block, whose rows of A meet `tiles_of_b` tiles of B.
  void start(const void* source, int64_t tiles_of_b) {
    if (source != source_)
      for (Plan& plan : plans_) plan.measured = false;
    source_ = source;
    tiles_of_b_ = tiles_of_b;
    rows_ = {};
    ++chunk_;
  }

  // Plans the carries of `tile`, or takes its plan: the `index`th of the tiles of B that the rows of the source meet.
  // raise(RowSquares&) raises squares to those of all rows of this chunk of the block.
  template <class F>
  void apply(int64_t index, Tile<Pair>& tile, F&& raise) {
    plans_.resize(static_cast<size_t>(count_));
    Plan& plan = plans_[static_cast<size_t>(index)];
    if (!plan.measured) plan.of.measure(tile, tiles_of_b_);
    if (!plan.measured || plan.chunk != chunk_) plan.of.plan_for(rows_, [&] { raise(rows_); });
    plan.measured = true;
    plan.chunk = chunk_;
    tile.carries = plan.of.carries();
  }

 private:
  struct Plan {
    bool measured = false;
    int64_t chunk = 0;  // whose rows it is for
    CarryPlan of;
  };
  int64_t count_;
  std::vector<Plan> plans_;
  const void* source_ = nullptr;
  int64_t chunk_ = 0, tiles_of_b_ = 0;
  RowSquares rows_;  // of the current chunk of a block
};

// Product::run takes the rows of A and C from a Source:
//   int64_t rows() const;
//   Place place(int64_t row) const;   // Place is a type of the source
//   TileRows<T> tile(Place& place, int rows) const;   // the next rows, at most `rows`; advances the place
//   const std::vector<Span>& spans() const;
//   int64_t a_step() const;   // distance of consecutive k; rows of A are adjacent if it is not 1
template <class T>
class Product {
 public:
  // `b` holds B's columns as `strips`, for the part [k_begin, k_end) of nominal k in [0, k_count): a range that
  // for_each_chunk takes, or whole chunks of a single group; all of [0, k_count) for pairs. Row k of strip s is at b +
  // (k_end - k_begin) * strips.begin(s) + (k - k_begin) * strips.width(s).
  Product(const T* b, const Strips& strips, int64_t k_begin, int64_t k_end, int64_t k_count, Epilogue<T> epilogue)
      : b_(b), strips_(strips), k_begin_(k_begin), k_end_(k_end), k_count_(k_count), epilogue_(epilogue) {}

  // For a B that is not packed: row k is at b + (k - k_begin) * step.
  static Product in_place(const T* b, int64_t step, const Strips& strips, int64_t k_begin, int64_t k_end,
                          int64_t k_count, Epilogue<T> epilogue) {
    Product product(b, strips, k_begin, k_end, k_count, epilogue);
    product.b_step_ = step;
    return product;
  }

  template <class Source>
  void run(CpuStream& stream, std::span<const Source> sources) const {
    int64_t tiles = 0, work = 0;
    for (const Source& source : sources) tiles += tiles_of(source), work += tiles_of(source) * work_of(source);
    // If there are few tiles, columns are divided as well.
    const int64_t wanted = stream.threads() == 1 ? 1 : (4 * stream.threads() - 1) / std::max<int64_t>(tiles, 1) + 1;
    const int64_t parts = std::min(wanted, strips_.count);
    stream.parallel_for(parts * work, 1, [&](int64_t begin, int64_t end) {
      Workspace workspace(*this);
      int64_t at = 0;  // work of the tiles before the current ones
      for (int64_t part = 0; part < parts; ++part) {
        const int64_t s0 = strips_.count * part / parts, s1 = strips_.count * (part + 1) / parts;
        for (const Source& source : sources) {
          const int64_t each = work_of(source), count = tiles_of(source);
          const auto tile_after = [&](int64_t w) { return std::clamp<int64_t>((w - at + each - 1) / each, 0, count); };
          const int64_t last = tile_after(end);
          for (int64_t t = tile_after(begin); t < last; t += kBlockTiles)
            block(source, t, std::min(last, t + kBlockTiles), s0, s1, workspace);
          at += count * each;
        }
      }
    });
  }

 private:
  // A block's chunk of A stays in the second-level cache.
  static constexpr int64_t kBlockTiles = 16 * kChunk / chunk_length<T>();
  // The most elements of B, in all strips, with which C is written row by row. The second-level cache delivers pairs as
  // fast as tiles take them.
  static constexpr int64_t kNearB = (std::is_same_v<T, Pair> ? 65536 : 16384) / sizeof(T);
  static constexpr int64_t kLine = 64 / sizeof(T);

  struct Workspace {
    explicit Workspace(const Product& p)
        : panels(kBlockTiles * p.panel_step()),
          groups(needs_buffer<T>(p.k_count_) ? kBlockTiles * p.extent_.rows * p.strips_.padded_columns() : 0),
          runs(chunk_length<T>()),
          plans(p.strips_.count * p.most_chunks()) {}
    Scratch<T> panels;
    Scratch<PartialOf<T>> groups;
    std::vector<Run> runs;
    TileRows<T> tiles[kBlockTiles];
    CarryPlans plans;
  };

  template <class Source>
  int64_t tiles_of(const Source& source) const {
    return (source.rows() + extent_.rows - 1) / extent_.rows;
  }
  // The work of a tile: its terms in k, plus a constant overhead.
  template <class Source>
  static int64_t work_of(const Source& source) {
    int64_t work = 32;
    for (const Span& span : source.spans()) work += span.length;
    return work;
  }

  // Computes tiles [t0, t1) of the source times the strips [s0, s1).
  template <class Source>
  void block(const Source& source, int64_t t0, int64_t t1, int64_t s0, int64_t s1, Workspace& w) const {
    const int64_t tiles = t1 - t0, j0 = strips_.begin(s0), cols = strips_.begin(s1) - j0;
    auto place = source.place(t0 * extent_.rows);
    for (int64_t t = 0; t < tiles; ++t) w.tiles[t] = source.tile(place, extent_.rows);
    const bool packed = source.a_step() != 1;
    int64_t chunks = 0;
    for_each_chunk<T>(k_begin_, k_end_, k_count_, [&](const Chunk& chunk) {
      const int64_t run_count = make_runs(source.spans(), chunk, packed, w.runs.data());
      if (packed) pack(source, w.tiles, tiles, chunk, w.panels.data());
      Tile<T> tile{.runs = w.runs.data(),
                   .run_count = run_count,
                   .tile_rows = extent_.rows,
                   .rows = 0,
                   .cols = 0,
                   .b = nullptr,
                   .b_step = b_step_};
      const int64_t length = chunk.end - chunk.begin, first_plan = chunks++ * strips_.count;
      if constexpr (std::is_same_v<T, Pair>) w.plans.start(&source, s1 - s0);
      const auto take_rows = [&](int64_t t) {
        tile.rows = w.tiles[t].count;
        if (packed) tile.panel = w.panels.data() + t * panel_step();
        else tile.a_rows = w.tiles[t].a;
      };
      const auto take_strip = [&](int64_t s) {
        tile.cols = static_cast<int>(strips_.exist(s));
        tile.c_offset = strips_.begin(s);
        tile.b = b_step_ > 0 ? b_ + tile.c_offset : packed_row(s, k_begin_);
        if (b_step_ == 0) tile.b_step = strips_.width(s);
        if constexpr (std::is_same_v<T, Pair>) {
          if (tiles >= kPlannedTiles)
            w.plans.apply(first_plan + s, tile, [&](RowSquares& squares) {
              for (int64_t t = 0; t < tiles; ++t) take_rows(t), squares.raise(tile);
            });
        }
      };
      const auto multiply = [&](int64_t t) {
        const TileRows<T>& at = w.tiles[t];
        take_rows(t);
        PartialOf<T>* group_rows[kMostTileRows];
        if (!chunk.in_place)
          for (int r = 0; r < extent_.rows; ++r) group_rows[r] = w.groups.data() + (t * extent_.rows + r) * cols - j0;
        if constexpr (std::is_same_v<T, Pair>) tile.row_exponents = at.exponents;
        add_chunk(tile, chunk, at.c, group_rows, epilogue_.at(tile.c_offset));
        multiply_tile(tile);
      };
      // Meanwhile tiles prefetch their shares of the next strip or, in the last strip, of the part of A that is packed
      // or read next: another chunk, or another block.
      const int64_t next =
          chunk.end < k_end_ ? chunk.end * source.a_step() : k_begin_ * source.a_step() + kBlockTiles * extent_.rows;
      const auto fetch_a = [&](const TileRows<T>& at) {
        const bool dense = length > 0 && at.a[1] - at.a[0] == length;
        tile.next = packed ? at.a[0] + next : dense ? at.a[0] + kBlockTiles * extent_.rows * length : nullptr;
        tile.next_step = packed ? source.a_step() : extent_.rows;
      };
      if (b_step_ == 0 && length * cols <= kNearB) {
        // All strips stay in the cache, so C is written row by row, and prefetched.
        for (int64_t t = 0; t < tiles; ++t) {
          for (int64_t s = s0; s < s1; ++s) {
            take_strip(s);
            tile.next = nullptr;
            if (s + 1 == s1) fetch_a(w.tiles[t]);
            if (s == s0 && !tile.next && t + 1 < tiles)
              tile.next = reinterpret_cast<const T*>(w.tiles[t + 1].c[0] + j0), tile.next_step = kLine;
            multiply(t);
          }
        }
        return;
      }
      for (int64_t s = s0; s < s1; ++s) {
        take_strip(s);
        const bool last = s + 1 == s1;
        const int64_t width = last || b_step_ > 0 ? 0 : strips_.width(s + 1), share = (width + tiles - 1) / tiles;
        for (int64_t t = 0; t < tiles; ++t) {
          tile.next = t * share < width ? packed_row(s + 1, chunk.begin) + t * share * length : nullptr;
          tile.next_step = share;
          if (last) fetch_a(w.tiles[t]);
          multiply(t);
        }
      }
    });
  }

  int64_t most_chunks() const {  // an empty sum has one
    return std::max<int64_t>(1, (k_end_ - k_begin_ + chunk_length<T>() - 1) / chunk_length<T>());
  }
  int64_t panel_step() const { return elinvar::panel_step(extent_, chunk_length<T>()); }

  // Row k of a packed strip.
  const T* packed_row(int64_t s, int64_t k) const {
    return b_ + (k_end_ - k_begin_) * strips_.begin(s) + (k - k_begin_) * strips_.width(s);
  }

  // Calls f(offset, k, length) for the spans in the chunk.
  template <class F>
  static void for_each_span(const std::vector<Span>& spans, const Chunk& chunk, F&& f) {
    for (const Span& span : spans) {
      const int64_t from = std::max(span.k, chunk.begin), to = std::min(span.k + span.length, chunk.end);
      if (from < to) f(span.offset + from - span.k, from, to - from);
    }
  }

  // Returns the number of runs. Spans that are adjacent in k and in A, packed or not, form one run.
  int64_t make_runs(const std::vector<Span>& spans, const Chunk& chunk, bool packed, Run* runs) const {
    int64_t count = 0, k_packed = 0;
    for_each_span(spans, chunk, [&](int64_t offset, int64_t k, int64_t length) {
      const int64_t a = packed ? k_packed : offset, b_row = k - k_begin_;
      k_packed += length;
      Run* previous = count > 0 ? &runs[count - 1] : nullptr;
      if (previous && previous->a + previous->length == a && previous->b_row + previous->length == b_row)
        previous->length += length;
      else runs[count++] = {.a = a, .b_row = b_row, .length = length};
    });
    return count;
  }

  template <class Source>
  void pack(const Source& source, const TileRows<T>* tiles, int64_t tile_count, const Chunk& chunk, T* out) const {
    const int64_t step = panel_step();
    for_each_span(source.spans(), chunk, [&](int64_t offset, int64_t, int64_t length) {
      pack_panels(tiles[0].a[0] + offset * source.a_step(), source.a_step(), length,
                  (tile_count - 1) * extent_.rows + tiles[tile_count - 1].count, extent_.rows, out, step);
      out += length * extent_.rows;
    });
  }

  const T* b_;
  int64_t b_step_ = 0;  // 0 if packed
  Strips strips_;
  int64_t k_begin_, k_end_, k_count_;
  Epilogue<T> epilogue_;
  TileExtent extent_ = strips_.extent;
};

// The rows of a matrix A, row-major or column-major, and those of C.
template <class T>
struct MatrixRows {
  const T* a;
  int64_t a_row, a_col;
  ResultOf<T>* c;
  int64_t c_row, m;
  std::vector<Span> whole;             // the range of k
  const int32_t* exponents = nullptr;  // of rows of A, if they are pairs

  int64_t rows() const { return m; }
  int64_t a_step() const { return a_col; }
  const std::vector<Span>& spans() const { return whole; }
  int64_t place(int64_t row) const { return row; }
  TileRows<T> tile(int64_t& place, int rows) const {
    TileRows<T> t;
    t.count = static_cast<int>(std::min<int64_t>(rows, m - place));
    for (int r = 0; r < rows; ++r) {
      const int64_t row = place + std::min(r, t.count - 1);
      t.a[r] = a + row * a_row;
      t.c[r] = c + row * c_row;
      if constexpr (std::is_same_v<T, Pair>) t.exponents[r] = exponents[row];
    }
    place += t.count;
    return t;
  }
};

// Packs the columns [j0, j0 + strips.columns) and the rows [k_begin, k_end) of B in the layout that Product reads.
// Element (k, j) is at b[k * k_step + j * j_step]; one of the steps is 1.
template <class T>
void pack_b(CpuStream& stream, const T* b, int64_t k_step, int64_t j_step, int64_t k_begin, int64_t k_end, int64_t j0,
            const Strips& strips, T* packed) {
  const int64_t k_count = k_end - k_begin;
  if (j_step == 1) {  // a few rows at a time, in memory order: strips are far apart, often in the same cache set
    constexpr int64_t kRows = 16;
    stream.parallel_for((k_count + kRows - 1) / kRows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin * kRows; k < std::min(k_count, end * kRows); k += kRows)
        for (int64_t s = 0; s < strips.count; ++s)
          pack_strip(b + (k_begin + k) * k_step + j0 + strips.begin(s), k_step, 1, std::min(kRows, k_count - k),
                     strips.exist(s), strips.width(s), packed + k_count * strips.begin(s) + k * strips.width(s));
    });
    return;
  }
  const int64_t pieces = (k_count + kChunk - 1) / kChunk;
  stream.parallel_for(strips.count * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t s = item / pieces, k = item % pieces * kChunk;
      pack_strip(b + (k_begin + k) * k_step + (j0 + strips.begin(s)) * j_step, k_step, j_step,
                 std::min(kChunk, k_count - k), strips.exist(s), strips.width(s),
                 packed + k_count * strips.begin(s) + k * strips.width(s));
    }
  });
}

}  // namespace elinvar
