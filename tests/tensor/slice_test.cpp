#include "tensor/slice.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tensor/digest_tree.h"
#include "tensor/state.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

const std::vector<Shape> kShapes = {{2, 5000}, {0, 3}, {8192}, {7}};

TEST(Slices, AreCheckedAgainstShapes) {
  const auto error_of = [](const std::vector<Slice>& slices) {
    return test::message_of<UsageError>([&] { check_slices(slices, kShapes); });
  };
  EXPECT_NO_THROW(check_slices({}, kShapes));
  EXPECT_NO_THROW(
      check_slices(std::vector<Slice>{{0, 0, 4096}, {0, 4096, 10000}, {2, 4096, 8192}, {3, 0, 7}}, kShapes));
  EXPECT_EQ(error_of({{4, 0, 1}}), "[slices] there is no tensor 4 of 4");
  EXPECT_EQ(error_of({{-1, 0, 1}}), "[slices] there is no tensor -1 of 4");
  EXPECT_EQ(error_of({{1, 0, 0}}), "[slices] tensor 1 has 0 elements, but not [0, 0)");
  EXPECT_EQ(error_of({{0, 8192, 12288}}), "[slices] tensor 0 has 10000 elements, but not [8192, 12288)");
  EXPECT_EQ(error_of({{0, 0, 5000}}),
            "[slices] [0, 5000) of tensor 0 must begin and end at multiples of 4096 elements, or end where it ends, at "
            "10000");
  EXPECT_EQ(error_of({{0, 1, 4096}}),
            "[slices] [1, 4096) of tensor 0 must begin and end at multiples of 4096 elements, or end where it ends, at "
            "10000");
  EXPECT_NO_THROW(check_slices(std::vector<Slice>{{2, 0, 4096}, {0, 0, 4096}}, kShapes)) << "in any order";
  EXPECT_EQ(error_of({{0, 4096, 8192}, {2, 0, 4096}, {0, 0, 8192}}),
            "[slices] [0, 8192) and [4096, 8192) of tensor 0 overlap");
}

TEST(Slices, ViewsShareStorage) {
  const Tensor x = Tensor::zeros({2, 3});
  view_of(x, {0, 2, 5}).data<float>()[1] = 7;
  EXPECT_EQ(x.data<float>()[3], 7);
  EXPECT_EQ(view_of(x, {0, 2, 5}).shape(), Shape{3});
  EXPECT_THROW(view_of(x.transpose(0, 1), {0, 0, 1}), UsageError);
}

TEST(Slices, SumsFindTheirPlaces) {
  const SegmentLayout segments(kShapes);
  EXPECT_EQ(segments.count(), 3 + 0 + 2 + 1);
  const std::vector<Slice> slices = {{0, 4096, 10000}, {2, 4096, 8192}, {3, 0, 7}};
  EXPECT_EQ(segments.first(slices[1]), 4);
  EXPECT_EQ(SegmentLayout::count(slices[0]), 2);
  std::vector<double> all(12, 0.0);
  segments.place(slices, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}, all);
  EXPECT_EQ(all, (std::vector<double>{0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 7, 8}));
  EXPECT_THROW(segments.place(slices, std::vector<double>(7), all), UsageError);
  all.resize(11);
  EXPECT_THROW(segments.place(slices, std::vector<double>(8), all), UsageError);
}

// Slices of one tensor, held by different processes, on any device.
TEST(Slices, ChunksMakeTheDigestOfTheWhole) {
  constexpr int64_t kChunk = kDigestChunkBytes / static_cast<int64_t>(sizeof(float));
  std::vector<Device> devices = test::other_devices();
  devices.push_back({});
  for (const Shape& shape : {Shape{3, kChunk - 5}, Shape{2, kChunk}, Shape{9}, Shape{0, 4}, Shape()}) {
    Tensor x = Tensor::empty(shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i % 1001) - 0.25f;
    for (const Device device : devices) {
      const Tensor there = x.to(device);
      for (const int64_t step : {kChunk, 2 * kChunk}) {
        std::vector<Digest> chunks;
        for (int64_t begin = 0; begin < x.numel(); begin += step) {
          const Tensor slice = view_of(there, {0, begin, std::min(begin + step, x.numel())});
          const std::vector<Digest> found = digest_tree({&slice, 1})[0].chunks;
          chunks.insert(chunks.end(), found.begin(), found.end());
        }
        const TensorDigest whole = digest_tree({&x, 1})[0];
        EXPECT_EQ(chunks, whole.chunks) << to_string(shape);
        EXPECT_EQ(digest_of_chunks(DType::f32, shape, chunks), whole.digest) << to_string(shape);
        EXPECT_EQ(whole.digest, digest(x));
        if (chunks.size() > 1) {
          std::swap(chunks[0], chunks[1]);
          EXPECT_NE(digest_of_chunks(DType::f32, shape, chunks), whole.digest);
        }
        chunks.emplace_back();
        EXPECT_THROW(digest_of_chunks(DType::f32, shape, chunks), UsageError);
      }
    }
  }
  EXPECT_NE(digest_of_chunks(DType::f32, {0, 4}, {}), digest_of_chunks(DType::f64, {0, 4}, {}));
}

}  // namespace
}  // namespace elinvar
