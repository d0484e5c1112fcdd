#include "data/resize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/resize.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tensor/base/check.h"

// See Note [Kernels per target] in tensor/README.md. Output i is the sum of `count` inputs by weight[i * count ..].
HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// Four sums of weighted bytes.
#if HWY_TARGET == HWY_SCALAR
struct FourSums {
  int32_t v[4];

  static FourSums start() { return {{kHalf, kHalf, kHalf, kHalf}}; }
  void add(int32_t weight, const uint8_t* p) {
    for (int k = 0; k < 4; ++k) v[k] += weight * p[k];
  }
  void store(uint8_t* to) const {
    for (int k = 0; k < 4; ++k) to[k] = static_cast<uint8_t>(v[k] >> kWeightBits);
  }
};
#else
namespace hn = hwy::HWY_NAMESPACE;

struct FourSums {
  static constexpr hn::FixedTag<int32_t, 4> kWords{};
  static constexpr hn::FixedTag<uint8_t, 4> kBytes{};
  hn::Vec<decltype(kWords)> v;

  static HWY_INLINE FourSums start() { return {hn::Set(kWords, kHalf)}; }
  HWY_INLINE void add(int32_t weight, const uint8_t* p) {
    v = hn::Add(v, hn::Mul(hn::Set(kWords, weight), hn::PromoteTo(kWords, hn::LoadU(kBytes, p))));
  }
  HWY_INLINE void store(uint8_t* to) const {
    hn::StoreU(hn::DemoteTo(kBytes, hn::ShiftRight<kWeightBits>(v)), kBytes, to);
  }
};
#endif

// Scales a row: output i uses pixels from first[i] on. Channels are processed by fours: up to kBeyond bytes after the
// last pixel are read, and written.
HWY_INLINE void scale_pixels(const uint8_t* row, int64_t channels, const int64_t* first, const int32_t* weight,
                             int64_t count, int64_t outputs, uint8_t* to) {
  for (int64_t i = 0; i < outputs; ++i, weight += count, to += channels)
    for (int64_t k = 0; k < channels; k += 4) {
      const uint8_t* from = row + first[i] * channels + k;
      FourSums sums = FourSums::start();
      for (int64_t j = 0; j < count; ++j) sums.add(weight[j], from + j * channels);
      sums.store(to + k);
    }
}

// Compiles special cases for the most common numbers of weights in photographs.
void scale_row(const uint8_t* row, int64_t channels, const int64_t* first, const int32_t* weight, int64_t count,
               int64_t outputs, uint8_t* to) {
  if (channels == 3 && count == 4) scale_pixels(row, 3, first, weight, 4, outputs, to);
  else if (channels == 3 && count == 5) scale_pixels(row, 3, first, weight, 5, outputs, to);
  else scale_pixels(row, channels, first, weight, count, outputs, to);
}

// Computes one row of n bytes from `count` consecutive rows.
void sum_rows(const uint8_t* rows, int64_t n, const int32_t* weight, int64_t count, uint8_t* to) {
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t block = std::min(kBlock, n - begin);
    int32_t sums[kBlock] = {};
    for (int64_t j = 0; j < count; ++j) {
      const uint8_t* row = rows + j * n + begin;
      for (int64_t i = 0; i < block; ++i) sums[i] += weight[j] * row[i];
    }
    for (int64_t i = 0; i < block; ++i) to[begin + i] = static_cast<uint8_t>((sums[i] + kHalf) >> kWeightBits);
  }
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {
namespace {

constexpr int64_t kBeyond = 3;

HWY_EXPORT(scale_row);
HWY_EXPORT(sum_rows);

// For each output of an interval, the first input that it uses, and its weights.
struct Taps {
  int64_t most = 0;             // weights per output; those beyond its own are zero
  std::vector<int64_t> first;   // inputs first .. first + most - 1 exist
  std::vector<int32_t> weight;  // (outputs, most)
};

Taps taps(int64_t in, int64_t out, int64_t begin, int64_t end) {
  const int64_t reach = 2 * std::max(in, out);
  Taps t;
  t.most = std::min(in, reach / out + 2);
  t.weight.resize(static_cast<size_t>((end - begin) * t.most));
  for (int64_t i = begin; i < end; ++i) {
    const int64_t centre = (2 * i + 1) * in;
    const auto weight = [&](int64_t j) { return std::max<int64_t>(0, reach - std::abs((2 * j + 1) * out - centre)); };
    // The least j with (2j + 1) * out > centre - reach.
    const int64_t lowest = std::max<int64_t>(0, centre - reach - out) / (2 * out);
    const int64_t first = std::min(lowest, in - t.most);
    int64_t sum = 0, heaviest = first;
    for (int64_t j = first; j < first + t.most; ++j) {
      sum += weight(j);
      if (weight(j) > weight(heaviest)) heaviest = j;
    }
    int32_t* q = t.weight.data() + (i - begin) * t.most;
    int32_t left = 1 << kWeightBits;
    for (int64_t j = 0; j < t.most; ++j) {
      q[j] = static_cast<int32_t>((weight(first + j) << kWeightBits) / sum);
      left -= q[j];
    }
    q[heaviest - first] += left;
    t.first.push_back(first);
  }
  return t;
}

}  // namespace

Image resize(const ImageView& image, const Rect& part, int64_t height, int64_t width, const Rect& window) {
  invariant(part.y >= 0 && part.x >= 0 && part.height > 0 && part.width > 0 && part.y + part.height <= image.height &&
                part.x + part.width <= image.width,
            "the part lies inside the image");
  invariant(window.y >= 0 && window.x >= 0 && window.height > 0 && window.width > 0 &&
                window.y + window.height <= height && window.x + window.width <= width,
            "the window lies inside the result");
  const int64_t c = image.channels, row = window.width * c;
  const Taps across = taps(part.width, width, window.x, window.x + window.width);
  const Taps down = taps(part.height, height, window.y, window.y + window.height);

  const auto scale = HWY_DYNAMIC_DISPATCH(scale_row);
  const auto sum = HWY_DYNAMIC_DISPATCH(sum_rows);

  const int64_t top = down.first.front(), rows = down.first.back() + down.most - top;
  std::vector<uint8_t> scaled(static_cast<size_t>(rows * row + kBeyond)), last;
  for (int64_t y = 0; y < rows; ++y) {
    const int64_t begin = ((part.y + top + y) * image.width + part.x) * c;
    const uint8_t* from = image.pixels + begin;
    if (begin + part.width * c + kBeyond > image.bytes()) {  // reads beyond the buffer are not allowed
      last.assign(from, from + part.width * c);
      last.resize(last.size() + kBeyond);
      from = last.data();
    }
    scale(from, c, across.first.data(), across.weight.data(), across.most, window.width, scaled.data() + y * row);
  }

  Image result(window.height, window.width, c);
  for (int64_t y = 0; y < window.height; ++y)
    sum(scaled.data() + (down.first[static_cast<size_t>(y)] - top) * row, row, down.weight.data() + y * down.most,
        down.most, result.pixels.data() + y * row);
  return result;
}

}  // namespace elinvar
#endif  // HWY_ONCE
