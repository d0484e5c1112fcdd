#include "tensor/cuda/kernel.h"

#include "tensor/cuda/rounded_lines.h"
#include "tensor/cuda/rounded_rows.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

constexpr int kOneBlock = 1024;
// Lines of a thread: fewer blocks that find maxima change the same numbers less often.
constexpr int kLinesOfMaxima = 16, kLinesOfRounding = 8;

// Work before a kernel that finds maxima: it finds the largest of `count` exponents, which it also writes with the
// other sign, and writes zeros where maxima go. A null pointer leaves its part out.
struct Preparation {
  const int32_t* against = nullptr;
  int64_t count = 0;
  int32_t *negated = nullptr, *most = nullptr;
  int32_t* maxima = nullptr;
  int64_t maxima_count = 0;
};
struct Preparations {
  Preparation of_blocks[2];
};
__global__ void prepared_maxima(const __grid_constant__ Preparations all) {
  __shared__ int32_t of_warps[kOneBlock / 32];
  const Preparation& a = all.of_blocks[blockIdx.x];
  for (int64_t i = threadIdx.x; i < a.maxima_count; i += kOneBlock) a.maxima[i] = 0;
  if (!a.most) return;
  int32_t most = INT32_MIN;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < a.count; i += kOneBlock) {
    const int32_t exponent = a.against[i];
    most = larger(most, exponent);
    a.negated[i] = -exponent;
  }
  most = block_largest(most, of_warps);
  if (threadIdx.x == 0) *a.most = a.count == 0 ? 0 : most;
}

// The exponents of a weight's channels from their largest magnitudes. One block.
__global__ void balance_channels(const int32_t* largest, int64_t n, int32_t* exponents) {
  __shared__ int32_t of_warps[kOneBlock / 32];
  int32_t top = INT32_MIN;
  for (int64_t i = threadIdx.x; i < n; i += kOneBlock)
    if (is_balanced(largest[i])) top = larger(top, balance_exponent(largest[i]));
  top = block_largest(top, of_warps);
  for (int64_t i = threadIdx.x; i < n; i += kOneBlock) exponents[i] = balance_of(largest[i], top);
}

// A row has `lines`, of whole words. Fours of words are of one line, which is the row.
template <int kWords>
__global__ void interleaved_rows(const PairRowsArgs a, int lines, int words, int channels) {
  const int units = words / kWords;
  const int64_t of_pair = int64_t{lines} * units, all = (a.rows + 1) / 2 * of_pair;
  for (int64_t i = thread_of_grid(); i < all; i += grid_stride()) {
    const int64_t pair = i / of_pair, row = int64_t{lines} * words;
    const int rest = static_cast<int>(i - pair * of_pair), line = kWords > 1 ? 0 : rest / units,
              word = (rest - line * units) * kWords;
    const uint32_t* const first = a.q.as<uint32_t>() + 2 * pair * row + int64_t{line} * words + word;
    interleave<kWords>(first, 2 * pair + 1 < a.rows ? first + row : nullptr,
                       a.pairs_of_rows.as<uint32_t>() + (pair * lines + line) * channels + 2 * word,
                       channels - 2 * word);
  }
}

// A row, its channels and all lines are counted in int.
void check_extents(const char* op, int64_t rows, int64_t positions, int64_t channels) {
  for (const int64_t extent : {rows * positions, positions * (channels + 1)})
    if (extent > INT32_MAX / 2)
      throw UsageError("[" + std::string(op) + "] a GPU takes rows and all positions to 2^30, got " +
                       std::to_string(extent) + "; use --device cpu, or a smaller batch");
}

// Calls f with whether four adjacent channels are always in 16 aligned bytes, as a constant.
template <class F>
void visit_fours(bool fours, F f) {
  if (fours) f(std::true_type());
  else f(std::false_type());
}
bool in_fours(const LinesToRound& from) { return from.channels % 4 == 0 && start_at_16(from.x); }

// Rows of one line are lines of one group.
bool lines_are_rows(const LinesToRound& from) { return from.positions == 1 && from.rows_of_group >= from.rows; }

// A row is a group otherwise, or a pair of rows is.
LineGrid grid_of(const LinesToRound& from, int rows, int lines_of_thread) {
  const int64_t groups = (from.rows + rows - 1) / rows;
  const bool as_lines = lines_are_rows(from);
  return line_grid(as_lines ? 1 : std::max<int64_t>(groups, 1), as_lines ? groups : from.positions, from.channels,
                   lines_of_thread, multiprocessors());
}

template <Rounding kWay>
void find_largest(Gpu& stream, const char* name, const LinesToRound& from, const Maxima& to) {
  const LineGrid grid = grid_of(from, 1, kLinesOfMaxima);
  visit_fours(in_fours(from), [&](auto fours) {
    launch(stream, name, {.blocks = grid.blocks(), .threads = kLineThreads},
           lines_are_rows(from) ? largest_of_lines<fours(), kWay, true> : largest_of_lines<fours(), kWay, false>, from,
           grid, to);
  });
}

template <Rounding kWay>
void round_lines(Gpu& stream, const char* name, const LinesToRound& from, const RoundedLines& to) {
  LineGrid grid = grid_of(from, kWay == Rounding::rows ? 1 : 2, kLinesOfRounding);
  grid.backwards = kWay != Rounding::known;  // what was read last for maxima is in the cache
  visit_fours(in_fours(from), [&](auto fours) {
    launch(stream, name, {.blocks = grid.blocks(), .threads = kLineThreads},
           lines_are_rows(from) ? rounded_lines<fours(), kWay, true> : rounded_lines<fours(), kWay, false>, from, grid,
           to);
  });
}

// The magnitudes of channels, which begin at a multiple of 16 bytes, and of rows, and the largest exponents that these
// are rounded against.
struct Scratch {
  DeviceScratch<int32_t> memory;
  int32_t *channels, *rows, *most_of_channels, *most_of_rows;
  Scratch(Gpu& stream, int64_t row_count, int64_t channel_count)
      : memory(stream, channel_count + row_count + 2),
        channels(memory.data()),
        rows(channels + channel_count),
        most_of_channels(rows + row_count),
        most_of_rows(most_of_channels + 1) {}
};

void prepare(Gpu& stream, const char* name, const Preparation& first, const Preparation& second = {}) {
  const bool both = second.most || second.maxima;
  launch(stream, name, {.blocks = both ? 2 : 1, .threads = kOneBlock}, prepared_maxima, Preparations{{first, second}});
}

LinesToRound lines_of(const In& x, int64_t rows, int64_t positions, int64_t channels) {
  return {.x = x.as<float>(),
          .rows = rows,
          .rows_of_group = std::max<int64_t>(rows, 1),
          .positions = rows == 0 ? 0 : static_cast<int>(positions),
          .channels = static_cast<int>(channels),
          .period = static_cast<int>(channels),
          .against_channels = {},
          .against_rows = {}};
}

// Rounds by rows, by channels, or both ways, as the way says: rows against the channels' exponents, and channels
// against the rows'.
template <Rounding kWay>
void round_against(Gpu& stream, const char* name, LinesToRound from, const In& against_channels, const In& against_rows,
                   const QuantizedOut& by_rows, const QuantizedOut& by_channels) {
  const Scratch scratch(stream, from.rows, from.channels);
  const Preparation of_rows{against_channels.as<int32_t>(), from.channels, by_rows.channels.as<int32_t>(),
                            scratch.most_of_channels,       scratch.rows,  from.rows},
      of_channels{against_rows.as<int32_t>(), from.rows,        by_channels.rows.as<int32_t>(),
                  scratch.most_of_rows,       scratch.channels, from.channels};
  if (kWay == Rounding::both) prepare(stream, name, of_rows, of_channels);
  else prepare(stream, name, kWay == Rounding::rows ? of_rows : of_channels);
  if (from.channels == 0) return;
  if (kWay != Rounding::channels) from.against_channels = {against_channels.as<int32_t>(), 1, scratch.most_of_channels};
  if (kWay != Rounding::rows)
    from.against_rows = {from.rows > 0 ? against_rows.as<int32_t>() : nullptr, 1, scratch.most_of_rows};
  find_largest<kWay>(stream, name, from, {scratch.rows, scratch.channels});
  round_lines<kWay>(stream, name, from,
                    {scratch.rows, scratch.channels, by_rows.q.as<uint32_t>(), by_channels.q.as<uint32_t>(),
                     by_rows.rows.as<int32_t>(), by_channels.channels.as<int32_t>(), false});
}

// Rounds rows that fit into the registers of a block, and returns whether they do.
template <bool kWeight>
bool round_rows(Gpu& stream, const char* name, const RowsToRound& from) {
  const bool fours = from.channels % 4 == 0 && start_at_16(from.x, from.of_channels, from.a, from.b);
  const RowThreads threads = row_threads(from.positions, from.channels, fours);
  if (!threads.fit) return false;
  const int64_t of_block = threads.of_block / threads.of_row;
  const Grid grid{.blocks = std::max<int64_t>((from.rows + of_block - 1) / of_block, 1), .threads = threads.of_block};
  visit_fours(fours,
              [&](auto is_fours) { launch(stream, name, grid, rounded_rows<is_fours(), kWeight>, from, threads); });
  return true;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void quantize_rows(Gpu& stream, const QuantizeArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_rows";
  check_extents(kName, a.rows, a.positions, a.channels);
  const int channels = static_cast<int>(a.channels);
  if (round_rows<false>(stream, kName,
                        {a.x.as<float>(), a.rows, std::max<int64_t>(a.rows, 1), static_cast<int>(a.positions), channels,
                         channels, a.against.as<int32_t>(), a.to.q.as<uint32_t>(), a.to.rows.as<int32_t>(),
                         a.to.channels.as<int32_t>(), a.a.as<float>(), a.b.as<float>(), a.relu}))
    return;
  LinesToRound from = lines_of(a.x, a.rows, a.positions, a.channels);
  from.a = a.a.as<float>(), from.b = a.b.as<float>(), from.relu = a.relu;
  round_against<Rounding::rows>(stream, kName, from, a.against, {}, a.to, {});
}

template <>
void quantize_channels(Gpu& stream, const QuantizeArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_channels";
  check_extents(kName, a.rows, a.positions, a.channels);
  round_against<Rounding::channels>(stream, kName, lines_of(a.x, a.rows, a.positions, a.channels), {}, a.against, {},
                                    a.to);
}

template <>
void quantize_both(Gpu& stream, const QuantizeBothArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_both";
  check_extents(kName, a.rows, a.positions, a.channels);
  if (a.positions * a.channels == 0) {
    quantize_rows(stream, QuantizeArgs{a.x, a.against_channels, a.by_rows, a.rows, a.positions, a.channels});
    quantize_channels(stream, QuantizeArgs{a.x, a.against_rows, a.by_channels, a.rows, a.positions, a.channels});
    return;
  }
  round_against<Rounding::both>(stream, kName, lines_of(a.x, a.rows, a.positions, a.channels), a.against_channels,
                                a.against_rows, a.by_rows, a.by_channels);
}

template <>
void quantize_weight(Gpu& stream, const QuantizeWeightArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_weight";
  const int64_t rows = a.groups * a.outputs, count = a.groups * a.channels;
  check_extents(kName, rows, a.taps, a.channels);
  const Scratch scratch(stream, rows, count);
  prepare(stream, kName, {.maxima = scratch.channels, .maxima_count = count});
  if (count > 0) {
    LinesToRound lines = lines_of(a.w, a.groups, a.outputs * a.taps, a.channels);
    lines.rows_of_group = 1;
    find_largest<Rounding::channels>(stream, kName, lines, {nullptr, scratch.channels});
  }
  auto* const exponents = a.to.channels.as<int32_t>();
  if (round_rows<true>(stream, kName,
                       {a.w.as<float>(), rows, std::max<int64_t>(a.outputs, 1), static_cast<int>(a.taps),
                        static_cast<int>(a.channels), static_cast<int>(count), scratch.channels, a.to.q.as<uint32_t>(),
                        a.to.rows.as<int32_t>(), exponents}))
    return;
  launch(stream, kName, {.blocks = 1, .threads = kOneBlock}, balance_channels,
         static_cast<const int32_t*>(scratch.channels), count, exponents);
  prepare(stream, kName, {.maxima = scratch.rows, .maxima_count = rows});
  LinesToRound from = lines_of(a.w, rows, a.taps, a.channels);
  from.rows_of_group = std::max<int64_t>(a.outputs, 1);
  from.against_channels = {exponents, -1, nullptr};
  find_largest<Rounding::rows>(stream, kName, from, {scratch.rows, nullptr});
  round_lines<Rounding::rows>(
      stream, kName, from,
      {scratch.rows, nullptr, a.to.q.as<uint32_t>(), nullptr, a.to.rows.as<int32_t>(), nullptr, false});
}

template <>
void pair_rows(Gpu& stream, const PairRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "pair_rows";
  check_extents(kName, a.rows, a.positions, 2 * a.pairs);
  if (a.positions * a.channels == 0) return;
  const bool whole = a.channels == 2 * a.pairs;
  const int64_t positions = whole ? a.positions : 1;
  const int lines = static_cast<int>(a.positions / positions), words = static_cast<int>(a.pairs * positions),
            channels = static_cast<int>(a.channels * positions);
  const bool fours = whole && words % 4 == 0 && start_at_16(a.q.as<uint32_t>(), a.pairs_of_rows.as<uint32_t>());
  launch(stream, kName, {.blocks = blocks_for((a.rows + 1) / 2 * lines * words / (fours ? 4 : 1))},
         fours ? interleaved_rows<4> : interleaved_rows<1>, a, lines, words, channels);
}

template <>
void pair_weight_rows(Gpu& stream, const PairWeightRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "pair_weight_rows";
  const int64_t rows = a.groups * a.outputs;
  check_extents(kName, rows, a.taps, a.channels);
  if (rows * a.taps * a.channels == 0) return;
  // All taps of a row are one line: their pairs are of rows, so they may begin anywhere.
  LinesToRound from = lines_of(a.w, rows, 1, a.taps * a.channels);
  from.period = static_cast<int>(a.channels);
  from.rows_of_group = std::max<int64_t>(a.outputs, 1);
  from.against_channels = {a.channel_exponents.as<int32_t>(), -1, nullptr};
  round_lines<Rounding::known>(
      stream, kName, from,
      {a.row_exponents.as<int32_t>(), nullptr, nullptr, a.pairs_of_rows.as<uint32_t>(), nullptr, nullptr, false});
}

template <>
void pair_affine_rows(Gpu& stream, const PairAffineRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "pair_affine_rows";
  check_extents(kName, a.rows, a.positions, a.channels);
  if (a.rows * a.positions * a.channels == 0) return;
  LinesToRound from = lines_of(a.x, a.rows, a.positions, a.channels);
  from.a = a.a.as<float>(), from.b = a.b.as<float>(), from.relu = a.relu;
  from.against_channels = {a.channel_exponents.as<int32_t>(), -1, nullptr};
  round_lines<Rounding::known>(
      stream, kName, from,
      {a.row_exponents.as<int32_t>(), nullptr, nullptr, a.pairs_of_rows.as<uint32_t>(), nullptr, nullptr, true});
}

}  // namespace elinvar
