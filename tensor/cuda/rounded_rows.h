#pragma once
// Rounding of rows that fit into the registers of a block (NUMERICS.md, rules E2 and E3): one kernel reads them once,
// and finds what they are rounded against as well. Only ops/quantize.cu includes it.
#include "tensor/cuda/elements.h"
#include "tensor/cuda/quantize.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kMostRowThreads = 1024;
constexpr int kHeldNumbers = 16;  // of a thread

// x (rows, positions, channels). A weight has the largest magnitudes of its channels, (groups, channels), and row r is
// of group r / rows_of_group; a factor has the exponents that it is rounded against.
struct RowsToRound {
  const float* x;
  int64_t rows, rows_of_group;
  int positions, channels, count;  // count: of all groups' channels
  const int32_t* of_channels;
  uint32_t* pairs;
  int32_t *row_exponents, *channel_exponents;
  const float *a = nullptr, *b = nullptr;  // of fma(x, a, b), or null; a weight has none
  bool relu = false;
};

// Threads of a row: a power of two up to 32, or a block. A unit has the channels that a thread reads at once, all of
// one position.
struct RowThreads {
  int of_row, of_block, units_of_position, units;
  bool fit;
};
inline RowThreads row_threads(int64_t positions, int64_t channels, bool fours) {
  const int64_t unit = fours ? 4 : 2, of_position = (channels + unit - 1) / unit, units = positions * of_position,
                held = kHeldNumbers / unit;
  RowThreads threads{.of_row = 1,
                     .of_block = 256,
                     .units_of_position = static_cast<int>(std::max<int64_t>(of_position, 1)),
                     .units = static_cast<int>(units),
                     .fit = units <= kMostRowThreads * held};
  if (!threads.fit) return threads;
  // Half of what a thread could hold, so that there are more threads; all of it where a block would become too large.
  const int64_t each = units > kMostRowThreads / 2 * held / 2 ? held : held / 2;
  while (threads.of_row < 32 && threads.of_row * each < units) threads.of_row *= 2;
  if (threads.of_row * each < units) {
    const int64_t warps = (units + 32 * each - 1) / (32 * each);
    threads.of_row = threads.of_block = static_cast<int>(32 * warps);
  }
  return threads;
}

// Returns the largest x of the threads of a row to all of them, through shared memory if they are a block.
__device__ inline int32_t largest_of_row(int32_t x, int threads, int32_t (&of_warps)[kMostRowThreads / 32]) {
  if (threads > 32) return block_largest(x, of_warps);
  for (int s = threads / 2; s > 0; s /= 2) x = larger(x, __shfl_xor_sync(kWholeWarp, x, s));
  return x;
}

template <bool kFours, bool kWeight>
__global__ void __launch_bounds__(kMostRowThreads)
    rounded_rows(const __grid_constant__ RowsToRound from, const RowThreads threads) {
  constexpr int kUnit = kFours ? 4 : 2, kUnits = kHeldNumbers / kUnit;
  __shared__ int32_t most_of_warps[kMostRowThreads / 32], largest_of_warps[kMostRowThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), rows_of_block = threads.of_block / threads.of_row,
            row_of_block = thread / threads.of_row, t = thread - row_of_block * threads.of_row;
  const int64_t row = int64_t{blockIdx.x} * rows_of_block + row_of_block;
  const bool exists = row < from.rows;
  const float* const x = from.x + row * from.positions * from.channels;

  // Calls f(k, unit, channel, place in the row) for the thread's units.
  const auto each_unit = [&](auto f) {
    const int of_position = threads.units_of_position, down = threads.of_row / of_position,
              across = threads.of_row - down * of_position;
    int p = t / of_position, u = t - p * of_position;
#pragma unroll
    for (int k = 0; k < kUnits; ++k) {
      if (const int unit = t + k * threads.of_row; exists && unit < threads.units)
        f(k, unit, u * kUnit, p * from.channels + u * kUnit);
      p += down;
      u += across;
      if (u >= of_position) u -= of_position, ++p;
    }
  };
  float held[kUnits][kUnit];
  each_unit([&](int k, int, int c, int place) {
    if constexpr (kFours) {
      const auto four = *reinterpret_cast<const Some<float, kUnit>*>(x + place);
#pragma unroll
      for (int j = 0; j < kUnit; ++j) held[k][j] = four.v[j];
    } else {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) held[k][j] = c + j < from.channels ? x[place + j] : 0.0f;
    }
  });

  // A weight's largest exponent of channels, or the largest that a factor is rounded against.
  int32_t most = INT32_MIN;
#pragma unroll 4
  for (int i = t; i < from.count; i += threads.of_row) {
    const int32_t of_channel = from.of_channels[i];
    if (!kWeight) most = larger(most, of_channel);
    else if (is_balanced(of_channel)) most = larger(most, balance_exponent(of_channel));
  }
  most = largest_of_row(most, threads.of_row, most_of_warps);
  if (!kWeight && from.count == 0) most = 0;
  if (blockIdx.x == 0 && row_of_block == 0)
    for (int i = t; i < from.count; i += threads.of_row)
      from.channel_exponents[i] = kWeight ? balance_of(from.of_channels[i], most) : -from.of_channels[i];

  const int32_t* const of_channels = from.of_channels + (kWeight ? row / from.rows_of_group * from.channels : 0);
  int32_t largest = 0;
  each_unit([&](int k, int, int c, int) {
    // Returns the numbers of the unit's channels.
    const auto load = [&](const auto* array) {
      Some<std::decay_t<decltype(*array)>, kUnit> some{};
      if constexpr (kFours) some = *reinterpret_cast<const decltype(some)*>(array + c);
      else
        for (int j = 0; j < kUnit && c + j < from.channels; ++j) some.v[j] = array[c + j];
      return some;
    };
    const auto numbers = load(of_channels);
    if (!kWeight && from.a) {
      const auto a = load(from.a), b = load(from.b);
#pragma unroll
      for (int j = 0; j < kUnit; ++j) {
        const float value = fma(Vec<float>{held[k][j]}, Vec<float>{a.v[j]}, Vec<float>{b.v[j]}).v;
        held[k][j] = from.relu && value <= 0.0f ? 0.0f : value;
      }
    }
#pragma unroll
    for (int j = 0; j < kUnit; ++j) {
      held[k][j] *= kWeight ? power_of_two(-balance_of(numbers.v[j], most)) : relative_scale(numbers.v[j], most);
      largest = larger(largest, magnitude(held[k][j]));
    }
  });
  const int32_t exponent = exponent_of(largest_of_row(largest, threads.of_row, largest_of_warps));
  if (exists && t == 0) from.row_exponents[row] = exponent + (kWeight ? 0 : most);
  const float times = integer_scale(exponent);
  uint32_t* const pairs = from.pairs + row * threads.units * (kUnit / 2);
  each_unit([&](int k, int unit, int, int) {
    struct alignas(2 * kUnit) {
      uint32_t v[kUnit / 2];
    } words;
#pragma unroll
    for (int j = 0; j < kUnit; j += 2)
      words.v[j / 2] = pair_of(quantized(held[k][j] * times), quantized(held[k][j + 1] * times));
    reinterpret_cast<decltype(words)*>(pairs)[unit] = words;
  });
}

}  // namespace elinvar::HWY_NAMESPACE
