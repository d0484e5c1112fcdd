#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "tensor/base/check.h"
#include "tensor/digest_tree.h"
#include "tensor/state.h"

namespace elinvar {
namespace {

TEST(Digest, KnownValues) {
  // The published XXH3-128 of zero bytes with seed 0.
  EXPECT_EQ(digest_bytes(nullptr, 0).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, PiecesEqualTheWhole) {
  std::vector<unsigned char> bytes(100000);
  std::mt19937 random(1);
  for (auto& b : bytes) b = static_cast<unsigned char>(random());
  Hasher hasher;
  for (size_t at = 0; at < bytes.size();) {
    const size_t count = std::min<size_t>(random() % 3000, bytes.size() - at);
    hasher.add(bytes.data() + at, count);
    at += count;
  }
  EXPECT_EQ(hasher.digest(), digest_bytes(bytes.data(), bytes.size()));
}

TEST(Digest, HexRoundTripAndErrors) {
  const Digest d{0x0123456789abcdefu, 0xfedcba9876543210u};
  EXPECT_EQ(d.hex(), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(Digest::parse(d.hex()), d);
  for (const char* bad : {"", "0123", "0123456789abcdeffedcba987654321g", "0123456789abcdeffedcba98765432100"})
    EXPECT_THROW(Digest::parse(bad), UsageError) << bad;
}

TEST(TensorDigest, IndependentOfStridesAndThreads) {
  std::vector<float> values(700 * 900);
  std::iota(values.begin(), values.end(), -1000.0f);
  const Tensor x = Tensor::from(values, {700, 900});
  const Digest expected = digest(x);
  EXPECT_EQ(digest(x.transpose(0, 1).clone().transpose(0, 1)), expected);
  EXPECT_EQ(digest(x.slice(0, 0, 700)), expected);
  for (int threads : {1, 2, 3}) {
    CpuStream stream(threads);
    StreamScope scope(stream);
    EXPECT_EQ(digest(x), expected) << threads;
  }
}

TEST(TensorDigest, OfManyTensorsAtOnceAndOfTheirChunks) {
  const int64_t chunk = kDigestChunkBytes / 4;
  std::vector<Tensor> tensors = {Tensor::full({3}, 1), Tensor::zeros({2 * chunk + 5}), Tensor::zeros({0, 2}),
                                 Tensor::full({7, 11}, 2, DType::bf16).transpose(0, 1), Tensor::zeros({chunk})};
  for (int threads : {1, 2, 3}) {
    CpuStream stream(threads);
    StreamScope scope(stream);
    const std::vector<TensorDigest> tree = digest_tree(tensors);
    ASSERT_EQ(tree.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(tree[i].digest, digest(tensors[i])) << i;
    EXPECT_EQ(tree[1].chunks.size(), 3u);
    EXPECT_EQ(tree[2].chunks.size(), 0u);
    EXPECT_EQ(tree[4].chunks, std::vector<Digest>{tree[1].chunks[0]});
    Tensor other = tensors[1].clone();
    other.data<float>()[chunk + 1] = 1;
    const TensorDigest changed = digest_tree({&other, 1})[0];
    EXPECT_NE(changed.digest, tree[1].digest);
    for (size_t c = 0; c < 3; ++c) EXPECT_EQ(changed.chunks[c] == tree[1].chunks[c], c != 1) << c;
  }
}

TEST(TensorDigest, DependsOnShapeTypeAndBits) {
  const Tensor x = Tensor::zeros({2, 6});
  EXPECT_NE(digest(x), digest(Tensor::zeros({3, 4})));
  EXPECT_NE(digest(x), digest(Tensor::zeros({2, 6}, DType::i32)));
  EXPECT_NE(digest(x), digest(Tensor::full({2, 6}, -0.0)));
  EXPECT_NE(digest(Tensor::zeros({0, 2})), digest(Tensor::zeros({2, 0})));
}

template <class T, class Bits>
void expect_one_nan(Bits a, Bits b) {
  std::vector<T> x(5000), y(5000);
  x[4999] = std::bit_cast<T>(a);
  y[4999] = std::bit_cast<T>(b);
  EXPECT_EQ(digest(Tensor::from(x, {5000})), digest(Tensor::from(y, {5000})));
  x[4999] = T{};
  EXPECT_NE(digest(Tensor::from(x, {5000})), digest(Tensor::from(y, {5000})));
}

TEST(TensorDigest, NaNsAreOne) {
  expect_one_nan<float>(0x7fc00000u, 0xff800001u);
  expect_one_nan<double>(uint64_t{0x7ff8000000000000u}, uint64_t{0xfff0000000000001u});
  expect_one_nan<bf16>(uint16_t{0x7fc0u}, uint16_t{0xff81u});
}

#ifdef ELINVAR_EMULATION

const Device kGpu{DeviceKind::emulated};

// GPU code hashes without the library: tests every length that XXH3 treats differently, and blocks and chunks that end
// anywhere.
TEST(TensorDigest, IsThatOfTheCpuWhereverTensorsLie) {
  std::mt19937 random(1);
  std::vector<uint8_t> bytes(static_cast<size_t>(2 * kDigestChunkBytes + 100));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  const Tensor all = Tensor::from(bytes, {static_cast<int64_t>(bytes.size())});
  const Tensor there = all.to(kGpu);
  std::vector<Tensor> here, moved;
  const auto add = [&](int64_t begin, int64_t count) {
    here.push_back(all.slice(0, begin, begin + count));
    moved.push_back(there.slice(0, begin, begin + count));
  };
  for (int64_t count = 0; count < 1400; ++count) add(count % 7, count);
  for (const int64_t count : {1023, 1024, 1025, 2048, 2049, 32 * 1024, 33 * 1024 + 1, 65 * 1024 + 63, 65 * 1024 + 65})
    add(5, count);
  for (const int64_t past : {-65, -64, -1, 0, 1, 16, 99}) add(0, kDigestChunkBytes + past);
  add(100, 2 * kDigestChunkBytes);
  const std::vector<TensorDigest> expected = digest_tree(here), got = digest_tree(moved);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(got[i].digest, expected[i].digest) << here[i].numel() << " bytes";
    EXPECT_EQ(got[i].chunks, expected[i].chunks) << here[i].numel() << " bytes";
  }
}

TEST(TensorDigest, HasOneNaNOnAGpuAsWell) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const int64_t n : {3, 9, 40, 700, 9000}) {
      std::mt19937 random(static_cast<unsigned>(n));
      std::vector<uint8_t> bytes(static_cast<size_t>(n * size_of(dtype)));
      for (uint8_t& b : bytes) b = random() % 4 == 0 ? static_cast<uint8_t>(random()) : uint8_t{0xff};  // many NaNs
      Tensor x = Tensor::empty({n}, dtype);
      std::memcpy(x.raw(), bytes.data(), bytes.size());
      const Tensor odd = x.slice(0, 1, n);
      const std::vector<Tensor> here = {x, odd}, there = {x.to(kGpu), x.to(kGpu).slice(0, 1, n)};
      const std::vector<TensorDigest> expected = digest_tree(here), got = digest_tree(there);
      for (size_t i = 0; i < 2; ++i) EXPECT_EQ(got[i].digest, expected[i].digest) << name_of(dtype) << " " << n;
    }
  }
}

TEST(TensorDigest, OfTensorsOnSeveralDevices) {
  const Tensor a = Tensor::full({5, 300}, 0.5), b = Tensor::full({7}, 2, DType::i64);
  const std::vector<Tensor> mixed = {a.to(kGpu), b, a.transpose(0, 1).to(kGpu), a.to(kGpu).transpose(0, 1)};
  const std::vector<TensorDigest> got = digest_tree(mixed);
  EXPECT_EQ(got[0].digest, digest(a));
  EXPECT_EQ(got[1].digest, digest(b));
  EXPECT_EQ(got[2].digest, digest(a.transpose(0, 1)));
  EXPECT_EQ(got[3].digest, digest(a.transpose(0, 1)));
}

#endif

TEST(StateDigest, NamesCountOrderDoesNot) {
  const Tensor one = Tensor::scalar(1), two = Tensor::scalar(2);
  EXPECT_EQ(digest(StateDict{{"a", one}, {"b", two}}), digest(StateDict{{"b", two}, {"a", one}}));
  EXPECT_NE(digest(StateDict{{"a", one}, {"b", two}}), digest(StateDict{{"a", two}, {"b", one}}));
  EXPECT_NE(digest(StateDict{{"ab", one}}), digest(StateDict{{"a", one}}));
}

}  // namespace
}  // namespace elinvar
