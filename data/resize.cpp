#include "data/resize.h"

#include <algorithm>
#include <cstdlib>

#include "tensor/check.h"

namespace elinvar {
namespace {

constexpr int kBits = 14;

// For each output of an interval: the first input that it takes from, and the weights from there on.
struct Taps {
  int64_t most = 0;             // weights an output; those beyond its own are zero
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
    int32_t left = 1 << kBits;
    for (int64_t j = 0; j < t.most; ++j) {
      q[j] = static_cast<int32_t>((weight(first + j) << kBits) / sum);
      left -= q[j];
    }
    q[heaviest - first] += left;
    t.first.push_back(first);
  }
  return t;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>((sum + (1 << (kBits - 1))) >> kBits); }

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

  const int64_t top = down.first.front(), rows = down.first.back() + down.most - top;
  std::vector<uint8_t> scaled(static_cast<size_t>(rows * row));
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* from = image.pixels + ((part.y + top + y) * image.width + part.x) * c;
    uint8_t* to = scaled.data() + y * row;
    for (int64_t x = 0; x < window.width; ++x) {
      const int32_t* q = across.weight.data() + x * across.most;
      const uint8_t* pixel = from + across.first[static_cast<size_t>(x)] * c;
      for (int64_t k = 0; k < c; ++k) {
        int32_t sum = 0;
        for (int64_t j = 0; j < across.most; ++j) sum += q[j] * pixel[j * c + k];
        to[x * c + k] = rounded(sum);
      }
    }
  }

  Image result(window.height, window.width, c);
  std::vector<int32_t> sums(static_cast<size_t>(row));
  for (int64_t y = 0; y < window.height; ++y) {
    std::fill(sums.begin(), sums.end(), 0);
    const int32_t* q = down.weight.data() + y * down.most;
    const uint8_t* from = scaled.data() + (down.first[static_cast<size_t>(y)] - top) * row;
    for (int64_t j = 0; j < down.most; ++j)
      for (int64_t i = 0; i < row; ++i) sums[static_cast<size_t>(i)] += q[j] * from[j * row + i];
    std::transform(sums.begin(), sums.end(), result.pixels.data() + y * row, rounded);
  }
  return result;
}

}  // namespace elinvar
