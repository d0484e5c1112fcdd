#include "tensor/cuda/kernel.h"

#include "tensor/cuda/quantize.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Maxima of integers have one value in whatever order they are taken: those of pieces go to scratch memory.
constexpr int kPiece = 4096;   // elements of a row, or pairs, that a warp takes
constexpr int kLines = 256;    // lines of which a block finds the maxima of 32 channels
constexpr int kThreads = 256;  // threads of such a block

// Returns the largest x of a block of kOneBlock threads to all of them, through shared memory.
constexpr int kOneBlock = 1024;
__device__ inline int32_t block_largest(int32_t x, int32_t (&of_warps)[kOneBlock / 32]) {
  x = warp_largest(x);
  if (lane() == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  for (const int32_t of_warp : of_warps) x = larger(x, of_warp);
  return x;
}

// The elements of one line that a warp rounds, where there are `lines` lines of `length` elements.
struct Piece {
  int64_t line;
  int begin, end;
  bool exists;
  __device__ Piece(int64_t lines, int length, int pieces) {
    const int64_t item = thread_of_grid() / 32;
    line = item / pieces;
    exists = line < lines;
    begin = static_cast<int>(item - line * pieces) * kPiece;
    end = length - begin < kPiece ? length : begin + kPiece;
  }
};
int pieces_of(int64_t length) { return static_cast<int>(std::max<int64_t>((length + kPiece - 1) / kPiece, 1)); }

// The scales of what is rounded against exponents, and the largest of these. `negated` gets the exponents with the
// other sign; if it is null, `against` has them with the other sign. One block.
__global__ void relative_scales(const int32_t* against, int64_t n, int32_t* negated, float* scale, int32_t* most) {
  __shared__ int32_t of_warps[kOneBlock / 32];
  const int32_t sign = negated ? 1 : -1;
  int32_t here = INT32_MIN;
  for (int64_t i = threadIdx.x; i < n; i += kOneBlock) here = larger(here, sign * against[i]);
  here = n == 0 ? 0 : block_largest(here, of_warps);
  if (threadIdx.x == 0) *most = here;
  for (int64_t i = threadIdx.x; i < n; i += kOneBlock) {
    if (negated) negated[i] = -against[i];
    scale[i] = relative_scale(sign * against[i], here);
  }
}

// Rows whose channels are scaled. Row r has the scales of group r / rows_of_group.
struct ScaledRows {
  const float* x;
  const float* scale;
  int64_t rows, rows_of_group;
  int positions, channels;
  const float *a, *b;  // of fma(x, a, b), or null
  bool relu;
  __host__ __device__ int length() const { return positions * channels; }
  __device__ float value(float of_x, int c) const {
    if (!a) return of_x;
    const float y = fma(Vec<float>{of_x}, Vec<float>{a[c]}, Vec<float>{b[c]}).v;
    return relu && y <= 0.0f ? 0.0f : y;
  }
  __device__ const float* row(int64_t r) const { return x + r * length(); }
  __device__ const float* scales(int64_t r) const { return scale + r / rows_of_group * channels; }
};

__global__ void largest_of_rows(ScaledRows from, int pieces, int32_t* parts) {
  const Piece piece(from.rows, from.length(), pieces);
  if (!piece.exists) return;
  const float *x = from.row(piece.line), *scale = from.scales(piece.line);
  const int step = 32 % from.channels;
  int32_t most = 0;
  int c = (piece.begin + lane()) % from.channels;
  for (int i = piece.begin + lane(); i < piece.end; i += 32) {
    most = larger(most, magnitude(from.value(x[i], c) * scale[c]));
    c += step;
    if (c >= from.channels) c -= from.channels;
  }
  most = warp_largest(most);
  if (lane() == 0) parts[thread_of_grid() / 32] = most;
}

// `parts` has the maxima of parts_of_row pieces of each row; `base`, which may be null, is added to exponents.
__global__ void quantized_rows(ScaledRows from, const int32_t* parts, int parts_of_row, const int32_t* base,
                               uint32_t* pairs, int32_t* exponents, int pieces) {
  const int width = (from.channels + 1) / 2, length = from.positions * width;
  const Piece piece(from.rows, length, pieces);
  if (!piece.exists) return;
  int32_t most = 0;
  for (int i = lane(); i < parts_of_row; i += 32) most = larger(most, parts[piece.line * parts_of_row + i]);
  const int32_t exponent = exponent_of(warp_largest(most));
  if (piece.begin == 0 && lane() == 0) exponents[piece.line] = exponent + (base ? *base : 0);
  const float times = integer_scale(exponent), *x = from.row(piece.line), *scale = from.scales(piece.line);
  for (int i = piece.begin + lane(); i < piece.end; i += 32) {
    const int p = i / width, c = 2 * (i - p * width);
    const float* two = x + p * from.channels + c;
    const int32_t first = quantized(from.value(two[0], c) * scale[c] * times);
    const int32_t second = c + 1 < from.channels ? quantized(from.value(two[1], c + 1) * scale[c + 1] * times) : 0;
    pairs[piece.line * length + i] = pair_of(first, second);
  }
}

// Blocks of 32 channels by kLines lines of a group. term(group, line, c) is a magnitude.
struct ChannelBlock {
  int group, piece, c;
  __device__ ChannelBlock(int pieces, int channels) {
    const int across = (channels + 31) / 32, block = static_cast<int>(blockIdx.x), rest = block / across;
    group = rest / pieces;
    piece = rest - group * pieces;
    c = (block - rest * across) * 32 + lane();
  }
  // Returns the largest of lines [begin, end) of each channel to the threads of the first warp, through shared memory.
  template <class Term>
  __device__ int32_t largest(int32_t (&of_warps)[kThreads], int64_t begin, int64_t end, int channels, Term term) const {
    constexpr int kWarps = kThreads / 32;
    const int warp = static_cast<int>(threadIdx.x / 32);
    int32_t most = 0;
    for (int64_t line = begin + warp; line < end && c < channels; line += kWarps) most = larger(most, term(line));
    of_warps[threadIdx.x] = most;
    __syncthreads();
    for (int w = 0; w < kWarps && warp == 0; ++w) most = larger(most, of_warps[32 * w + lane()]);
    return most;
  }
};

// Lines (groups, lines, channels); a line is scaled by that of its row, unless `scale` is null.
struct Lines {
  const float* x;
  const float* scale;
  int64_t lines;
  int positions, channels;
};

__global__ void largest_of_lines(Lines from, int pieces, int32_t* parts) {
  __shared__ int32_t of_warps[kThreads];
  const ChannelBlock block(pieces, from.channels);
  const int64_t begin = int64_t{block.piece} * kLines, end = from.lines - begin < kLines ? from.lines : begin + kLines;
  const float* x = from.x + block.group * from.lines * from.channels + block.c;
  const int32_t most = block.largest(of_warps, begin, end, from.channels, [&](int64_t line) {
    const float value = x[line * from.channels];
    return magnitude(from.scale ? value * from.scale[static_cast<int>(line) / from.positions] : value);
  });
  if (threadIdx.x < 32 && block.c < from.channels)
    parts[(int64_t{block.group} * pieces + block.piece) * from.channels + block.c] = most;
}

// The maxima of all pieces of a group: themselves, or the exponents of channels, with the largest exponent added that
// these are rounded against.
__global__ void largest_of_parts(const int32_t* parts, int pieces, int channels, const int32_t* base, int32_t* to) {
  __shared__ int32_t of_warps[kThreads];
  const ChannelBlock block(1, channels);
  const int32_t* of_group = parts + int64_t{block.group} * pieces * channels + block.c;
  const int32_t most =
      block.largest(of_warps, 0, pieces, channels, [&](int64_t piece) { return of_group[piece * channels]; });
  if (threadIdx.x < 32 && block.c < channels)
    to[int64_t{block.group} * channels + block.c] = base ? exponent_of(most) + *base : most;
}

__global__ void quantized_channels(QuantizeArgs a, const float* scale, const int32_t* base, int pieces) {
  const int channels = static_cast<int>(a.channels), length = static_cast<int>(a.positions) * channels,
            step = 32 % channels;
  const Piece piece((a.rows + 1) / 2, length, pieces);
  if (!piece.exists) return;
  const int64_t r = 2 * piece.line;
  const bool both = r + 1 < a.rows;
  const float *first = a.x.as<float>() + r * length, *second = both ? first + length : first;
  const float first_scale = scale[r], second_scale = both ? scale[r + 1] : 0.0f;
  const int32_t *exponents = a.to.channels.as<int32_t>(), most = *base;
  uint32_t* const pairs = a.to.q.as<uint32_t>() + piece.line * length;
  int c = (piece.begin + lane()) % channels;
  for (int i = piece.begin + lane(); i < piece.end; i += 32) {
    const float times = integer_scale(exponents[c] - most);
    const int32_t low = quantized(first[i] * first_scale * times);
    pairs[i] = pair_of(low, both ? quantized(second[i] * second_scale * times) : 0);
    c += step;
    if (c >= channels) c -= channels;
  }
}

// The exponents of a weight's channels, from their largest magnitudes, and what rows are multiplied by. One block.
__global__ void balance_channels(const int32_t* largest, int64_t n, int32_t* exponents, float* scale) {
  __shared__ int32_t of_warps[kOneBlock / 32];
  int32_t top = INT32_MIN;
  for (int64_t i = threadIdx.x; i < n; i += kOneBlock)
    if (is_balanced(largest[i])) top = larger(top, balance_exponent(largest[i]));
  top = block_largest(top, of_warps);
  for (int64_t i = threadIdx.x; i < n; i += kOneBlock) {
    const int32_t e = balance_of(largest[i], top);
    exponents[i] = e;
    scale[i] = power_of_two(-e);
  }
}

__global__ void interleaved_rows(PairRowsArgs a, int pieces) {
  const int channels = static_cast<int>(a.channels), length = static_cast<int>(a.positions) * channels,
            width = 2 * static_cast<int>(a.pairs);
  const Piece piece((a.rows + 1) / 2, length, pieces);
  if (!piece.exists) return;
  const int64_t row = a.positions * width;
  const int16_t *first = a.q.as<int16_t>() + 2 * piece.line * row, *second = first + row;
  const bool both = 2 * piece.line + 1 < a.rows;
  for (int i = piece.begin + lane(); i < piece.end; i += 32) {
    const int p = i / channels, at = p * width + (i - p * channels);
    a.pairs_of_rows.as<uint32_t>()[piece.line * length + i] = pair_of(first[at], both ? second[at] : 0);
  }
}

__global__ void weight_scales(const int32_t* exponents, int64_t n, float* scale) {
  const int64_t i = thread_of_grid();
  if (i < n) scale[i] = power_of_two(-exponents[i]);
}

// Pairs of rows with these exponents, less `base`, which may be null. The rows of a pair are of one group.
__global__ void known_pairs(ScaledRows from, const int32_t* exponents, const int32_t* base, uint32_t* pairs,
                            int pieces) {
  const int length = from.length(), step = 32 % from.channels;
  const Piece piece((from.rows + 1) / 2, length, pieces);
  if (!piece.exists) return;
  const int64_t r = 2 * piece.line;
  const bool both = r + 1 < from.rows;
  const float *first = from.row(r), *second = both ? from.row(r + 1) : first, *scale = from.scales(r);
  const int32_t less = base ? *base : 0;
  const float first_times = integer_scale(exponents[r] - less),
              second_times = both ? integer_scale(exponents[r + 1] - less) : 0.0f;
  int c = (piece.begin + lane()) % from.channels;
  for (int i = piece.begin + lane(); i < piece.end; i += 32) {
    const int32_t low = quantized(from.value(first[i], c) * scale[c] * first_times);
    pairs[piece.line * length + i] =
        pair_of(low, both ? quantized(from.value(second[i], c) * scale[c] * second_times) : 0);
    c += step;
    if (c >= from.channels) c -= from.channels;
  }
}

// A row, its channels and all lines are counted in int.
void check_extents(const char* op, int64_t rows, int64_t positions, int64_t channels) {
  for (const int64_t extent : {rows * positions, positions * (channels + 1)})
    if (extent > INT32_MAX / 2)
      throw UsageError("[" + std::string(op) + "] a GPU takes rows and all positions to 2^30, got " +
                       std::to_string(extent) + "; use --device cpu, or a smaller batch");
}

// Rows without channels have no positions, because kernels divide by channels.
ScaledRows scaled_rows(const In& x, const float* scale, int64_t rows, int64_t rows_of_group, int64_t positions,
                       int64_t channels) {
  return {x.as<float>(),
          scale,
          rows,
          std::max<int64_t>(rows_of_group, 1),
          channels == 0 ? 0 : static_cast<int>(positions),
          std::max(static_cast<int>(channels), 1),
          nullptr,
          nullptr,
          false};
}

void quantize_scaled(Gpu& stream, const char* name, const ScaledRows& from, const int32_t* base,
                     const QuantizedOut& to) {
  const int parts_of_row = pieces_of(from.length()),
            pieces = pieces_of(int64_t{from.positions} * ((from.channels + 1) / 2));
  DeviceScratch<int32_t> parts(stream, from.rows * parts_of_row);
  launch(stream, name, {.blocks = warp_blocks(from.rows * parts_of_row)}, largest_of_rows, from, parts_of_row,
         parts.data());
  launch(stream, name, {.blocks = warp_blocks(from.rows * pieces)}, quantized_rows, from,
         static_cast<const int32_t*>(parts.data()), parts_of_row, base, to.q.as<uint32_t>(), to.rows.as<int32_t>(),
         pieces);
}

// Writes the largest magnitudes of channels (groups, channels), or their exponents if there is a base.
void find_largest(Gpu& stream, const char* name, const Lines& from, int64_t groups, const int32_t* base, int32_t* to) {
  const int64_t pieces = std::max<int64_t>((from.lines + kLines - 1) / kLines, 1), across = (from.channels + 31) / 32;
  DeviceScratch<int32_t> parts(stream, groups * pieces * from.channels);
  launch(stream, name, {.blocks = groups * pieces * across, .threads = kThreads}, largest_of_lines, from,
         static_cast<int>(pieces), parts.data());
  launch(stream, name, {.blocks = groups * across, .threads = kThreads}, largest_of_parts,
         static_cast<const int32_t*>(parts.data()), static_cast<int>(pieces), from.channels, base, to);
}

// The scales of numbers that are rounded against exponents.
struct Relative {
  DeviceScratch<float> scale;
  DeviceScratch<int32_t> most;
  Relative(Gpu& stream, const char* name, const In& against, int64_t n, const Out& negated)
      : scale(stream, n), most(stream, 1) {
    launch(stream, name, {.blocks = 1, .threads = kOneBlock}, relative_scales, against.as<int32_t>(), n,
           negated.as<int32_t>(), scale.data(), most.data());
  }
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void quantize_rows(Gpu& stream, const QuantizeArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_rows";
  check_extents(kName, a.rows, a.positions, a.channels);
  const Relative relative(stream, kName, a.against, a.channels, a.to.channels);
  ScaledRows from = scaled_rows(a.x, relative.scale.data(), a.rows, a.rows, a.positions, a.channels);
  from.a = a.a.as<float>(), from.b = a.b.as<float>(), from.relu = a.relu;
  quantize_scaled(stream, kName, from, relative.most.data(), a.to);
}

template <>
void quantize_channels(Gpu& stream, const QuantizeArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_channels";
  check_extents(kName, a.rows, a.positions, a.channels);
  const Relative relative(stream, kName, a.against, a.rows, a.to.rows);
  const Lines from{a.x.as<float>(), relative.scale.data(), a.rows * a.positions, static_cast<int>(a.positions),
                   static_cast<int>(a.channels)};
  find_largest(stream, kName, from, 1, relative.most.data(), a.to.channels.as<int32_t>());
  if (a.channels == 0) return;
  const int pieces = pieces_of(a.positions * a.channels);
  launch(stream, kName, {.blocks = warp_blocks((a.rows + 1) / 2 * pieces)}, quantized_channels, a,
         static_cast<const float*>(relative.scale.data()), static_cast<const int32_t*>(relative.most.data()), pieces);
}

template <>
void quantize_both(Gpu& stream, const QuantizeBothArgs& a) {
  quantize_rows(stream, QuantizeArgs{a.x, a.against_channels, a.by_rows, a.rows, a.positions, a.channels});
  quantize_channels(stream, QuantizeArgs{a.x, a.against_rows, a.by_channels, a.rows, a.positions, a.channels});
}

template <>
void quantize_weight(Gpu& stream, const QuantizeWeightArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "quantize_weight";
  check_extents(kName, a.groups * a.outputs, a.taps, a.channels);
  const int64_t count = a.groups * a.channels;
  const int taps = static_cast<int>(a.taps), channels = static_cast<int>(a.channels);
  DeviceScratch<int32_t> largest(stream, count);
  DeviceScratch<float> scale(stream, count);
  find_largest(stream, kName, {a.w.as<float>(), nullptr, a.outputs * a.taps, taps, channels}, a.groups, nullptr,
               largest.data());
  launch(stream, kName, {.blocks = 1, .threads = kOneBlock}, balance_channels,
         static_cast<const int32_t*>(largest.data()), count, a.to.channels.as<int32_t>(), scale.data());
  quantize_scaled(stream, kName, scaled_rows(a.w, scale.data(), a.groups * a.outputs, a.outputs, a.taps, a.channels),
                  nullptr, a.to);
}

template <>
void pair_rows(Gpu& stream, const PairRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "pair_rows";
  check_extents(kName, a.rows, a.positions, 2 * a.pairs);
  const int pieces = pieces_of(a.positions * a.channels);
  launch(stream, kName, {.blocks = warp_blocks((a.rows + 1) / 2 * pieces)}, interleaved_rows, a, pieces);
}

template <>
void pair_weight_rows(Gpu& stream, const PairWeightRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "pair_weight_rows";
  const int64_t rows = a.groups * a.outputs, count = a.groups * a.channels;
  check_extents(kName, rows, a.taps, a.channels);
  DeviceScratch<float> scale(stream, count);
  launch(stream, kName, {.blocks = (count + 255) / 256}, weight_scales, a.channel_exponents.as<int32_t>(), count,
         scale.data());
  const ScaledRows from = scaled_rows(a.w, scale.data(), rows, a.outputs, a.taps, a.channels);
  const int pieces = pieces_of(from.length());
  launch(stream, kName, {.blocks = warp_blocks((rows + 1) / 2 * pieces)}, known_pairs, from,
         a.row_exponents.as<int32_t>(), static_cast<const int32_t*>(nullptr), a.pairs_of_rows.as<uint32_t>(), pieces);
}

template <>
void pair_affine_rows(Gpu& stream, const PairAffineRowsArgs& a) {
  using namespace HWY_NAMESPACE;
  constexpr const char* kName = "pair_affine_rows";
  check_extents(kName, a.rows, a.positions, a.channels);
  const Relative relative(stream, kName, a.channel_exponents, a.channels, Out{});
  ScaledRows from = scaled_rows(a.x, relative.scale.data(), a.rows, a.rows, a.positions, a.channels);
  from.a = a.a.as<float>(), from.b = a.b.as<float>(), from.relu = a.relu;
  const int pieces = pieces_of(from.length());
  launch(stream, kName, {.blocks = warp_blocks((a.rows + 1) / 2 * pieces)}, known_pairs, from,
         a.row_exponents.as<int32_t>(), static_cast<const int32_t*>(relative.most.data()),
         a.pairs_of_rows.as<uint32_t>(), pieces);
}

}  // namespace elinvar
