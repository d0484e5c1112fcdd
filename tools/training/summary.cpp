#include "tools/training/summary.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include "data/utf8.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// Fields of Summary and of the messages in it.
constexpr int kValue = 1;
constexpr int kTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5, kTensor = 8, kMetadata = 9;
constexpr int kImageHeight = 1, kImageWidth = 2, kImageColorspace = 3, kImageEncoded = 4;
constexpr int kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
constexpr int kDtype = 1, kTensorShape = 2, kStringVal = 8, kDim = 2, kDimSize = 1, kDtString = 7;
constexpr int kPluginData = 1, kPluginName = 1;

constexpr int kMantissaBits = 21;      // the low bits of a float's 23 that a bucket ignores
constexpr int kBucketsPerSign = 1020;  // up to the largest float

// Returns the smallest magnitude of a bucket.
double magnitude(int bucket) {
  if (bucket >= kBucketsPerSign) return std::numeric_limits<float>::max();
  return std::bit_cast<float>(static_cast<uint32_t>(bucket) << kMantissaBits);
}

ProtoMessage value_of(const std::string& tag) {
  ProtoMessage value;
  value.text(kTag, tag);
  return value;
}

std::string code_block(const std::string& text) {
  constexpr char32_t kReplacement = 0xFFFD;
  constexpr const char* kIndent = "    ";
  std::string block = kIndent;
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = code_point(text, at);
    append_utf8(block, point.good ? point.value : kReplacement);
    if (point.value == '\n') block += kIndent;
    at += point.bytes;
  }
  return block;
}

std::string png(const Image& image) {
  std::string bytes;
  const auto append = [](void* text, void* from, int count) {
    static_cast<std::string*>(text)->append(static_cast<const char*>(from), static_cast<size_t>(count));
  };
  const int channels = static_cast<int>(image.channels), width = static_cast<int>(image.width);
  stbi_write_png_to_func(append, &bytes, width, static_cast<int>(image.height), channels, image.pixels.data(),
                         width * channels);
  return bytes;
}

}  // namespace

Histogram histogram_of(std::span<const float> values) {
  // Ascending: from the most negative value to the largest positive one.
  std::array<int64_t, 2 * kBucketsPerSign> counts{};
  Histogram h;
  float least = std::numeric_limits<float>::infinity(), most = -least;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const int bucket = static_cast<int>((std::bit_cast<uint32_t>(value) & 0x7FFFFFFF) >> kMantissaBits);
    ++counts[static_cast<size_t>(value < 0 ? kBucketsPerSign - 1 - bucket : kBucketsPerSign + bucket)];
    least = std::min(least, value);
    most = std::max(most, value);
    ++h.count;
    h.sum += value;
    h.sum_squares += static_cast<double>(value) * value;
  }
  if (h.count == 0) return h;
  h.min = least;
  h.max = most;
  const auto limit = [](size_t i) {
    const int bucket = static_cast<int>(i) - kBucketsPerSign;
    return bucket < 0 ? -magnitude(-1 - bucket) : magnitude(bucket + 1);
  };
  size_t first = 0, last = counts.size() - 1;
  while (counts[first] == 0) ++first;
  while (counts[last] == 0) --last;
  for (size_t i = first; i <= last; ++i) {
    if (counts[i] == 0 && h.counts.back() == 0) h.limits.back() = limit(i);
    else {
      h.limits.push_back(limit(i));
      h.counts.push_back(static_cast<double>(counts[i]));
    }
  }
  return h;
}

void Summary::scalar(const std::string& tag, double number) {
  ProtoMessage value = value_of(tag);
  value.real(kSimpleValue, static_cast<float>(number));
  message_.message(kValue, value);
}

void Summary::histogram(const std::string& tag, const Histogram& h) {
  ProtoMessage histo;
  histo.real(kMin, h.min);
  histo.real(kMax, h.max);
  histo.real(kNum, h.count);
  histo.real(kSum, h.sum);
  histo.real(kSumSquares, h.sum_squares);
  histo.reals(kBucketLimit, h.limits);
  histo.reals(kBucket, h.counts);
  ProtoMessage value = value_of(tag);
  value.message(kHisto, histo);
  message_.message(kValue, value);
}

void Summary::image(const std::string& tag, const Image& image) {
  check(image.channels == 1 || image.channels == 3, "[summary] an image of 1 or 3 channels expected, got {}",
        image.channels);
  ProtoMessage picture;
  picture.integer(kImageHeight, image.height);
  picture.integer(kImageWidth, image.width);
  picture.integer(kImageColorspace, image.channels);
  picture.text(kImageEncoded, png(image));
  ProtoMessage value = value_of(tag);
  value.message(kImage, picture);
  message_.message(kValue, value);
}

void Summary::text(const std::string& tag, const std::string& text) {
  ProtoMessage dim, shape, tensor, plugin, metadata;
  dim.integer(kDimSize, 1);
  shape.message(kDim, dim);
  tensor.integer(kDtype, kDtString);
  tensor.message(kTensorShape, shape);
  tensor.text(kStringVal, code_block(text));
  plugin.text(kPluginName, "text");
  metadata.message(kPluginData, plugin);
  ProtoMessage value = value_of(tag);
  value.message(kMetadata, metadata);
  value.message(kTensor, tensor);
  message_.message(kValue, value);
}

}  // namespace elinvar
