// Products whose sums a GPU cuts into slices, or that have several chunks, for each layout of the factors, each tile
// and each width of loads. Plans depend on the number of multiprocessors: with 3 of them, exact products of pairs have
// large tiles, and with many those of chunks do.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "tensor/cuda/product_plan.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tests/support/bits.h"
#include "tests/tensor/exact_reference.h"
#include "tests/tensor/tiny_lines.h"

namespace elinvar::test {
namespace {

class ExactSlices : public ExactTest {};
INSTANTIATE_TEST_SUITE_P(, ExactSlices, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExactSlices);

constexpr GpuExtent kFewProcessors{.multiprocessors = 3, .scratch = 256 << 20},
    kManyProcessors{.multiprocessors = 132, .scratch = 256 << 20};

// Of k in pairs.
struct SlicedProduct {
  int64_t m, n, k;
};
constexpr SlicedProduct kSinglePairs{43, 53, 1291};   // loads of single pairs, five slices
constexpr SlicedProduct kPairsInFours{20, 36, 1292};  // loads of four pairs
constexpr SlicedProduct kLargeTiles{108, 128, 788};   // large tiles of pairs, three slices, with few multiprocessors
constexpr SlicedProduct kInChunks{105, 125, 520};     // chunks, two slices, with many multiprocessors

TEST(ExactPlan, CutsTheseProducts) {
  const auto plan = [](const SlicedProduct& p, const LargeTiles& large, const GpuExtent& gpu) {
    return plan_exact_product(p.m, p.n, p.k, 1, large, gpu);
  };
  for (const SlicedProduct& p : {kSinglePairs, kPairsInFours}) {
    EXPECT_EQ(plan(p, kNoLargeTiles, kFewProcessors).side, 64);
    EXPECT_EQ(plan(p, kNoLargeTiles, kFewProcessors).slices, 5);
  }
  EXPECT_EQ(plan(kLargeTiles, kLargeTilesOfPairs, kFewProcessors).side, 128);
  EXPECT_EQ(plan(kLargeTiles, kLargeTilesOfPairs, kFewProcessors).slices, 3);
  const ExactPlan of_chunks =
      plan(kInChunks, large_tiles_of_chunks((kInChunks.m + kInChunks.n) * kInChunks.k), kManyProcessors);
  EXPECT_EQ(of_chunks.side, 128);
  EXPECT_EQ(of_chunks.slices, 2);
}

Quantized moved(const Quantized& x, Device to) {
  return {.q = x.q.to(to), .rows = x.rows.to(to), .channels = x.channels.to(to), .pairs = x.pairs};
}

// A factor of `lines` with k pairs each, which are neighbours in memory or not.
Quantized factor(int64_t lines, int64_t k, bool along_k, uint64_t seed) {
  if (along_k) return quantize_rows(random_factor({lines, 1, 2 * k}, seed), Tensor::zeros({2 * k}, DType::i32));
  return quantize_channels(random_factor({2 * k, 1, lines}, seed), Tensor::zeros({2 * k}, DType::i32));
}

TEST_P(ExactSlices, OfMatrices) {
  for (const auto& [m, n, k] : {kSinglePairs, kPairsInFours, kLargeTiles, kInChunks})
    for (const bool a_along : {true, false})
      for (const bool b_along : {true, false}) {
        if (!a_along && b_along) continue;  // exact_matmul refuses it
        const Quantized a = factor(m, k, a_along, 1), b = factor(n, k, b_along, 2);
        const Tensor bias = a_along == b_along ? random_factor({n}, 3) : Tensor{};
        const Tensor got = exact_matmul(moved(a, device_), moved(b, device_), bias.defined() ? bias.to(device_) : bias);
        EXPECT_TRUE(same_bits(got.to(Device{}), exact_matmul(a, b, bias)))
            << m << " by " << n << " by " << k << ", A " << a_along << ", B " << b_along;
      }
}

struct SlicedImages {
  Shape x, w;
  ConvOptions options;
};
constexpr ConvOptions kSamePadding{.pad_h = 1, .pad_w = 1},
    kStrided{.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};

// The sum of one of the three products has as many terms as those of the matrices.
TEST_P(ExactSlices, OfImages) {
  for (const auto& [xs, ws, o] : std::vector<SlicedImages>{{{1, 7, 9, 286}, {61, 3, 3, 286}, kSamePadding},
                                                           {{1, 8, 8, 296}, {64, 3, 3, 296}, kSamePadding},
                                                           {{1, 11, 11, 184}, {128, 3, 3, 184}, kSamePadding},
                                                           {{1, 11, 11, 128}, {125, 3, 3, 128}, kSamePadding},
                                                           {{1, 7, 9, 61}, {286, 3, 3, 61}, kSamePadding},
                                                           {{1, 4, 5, 8}, {296, 3, 3, 8}, kStrided},
                                                           {{1, 8, 8, 64}, {296, 3, 3, 64}, kSamePadding},
                                                           {{1, 11, 11, 128}, {184, 3, 3, 128}, kSamePadding},
                                                           {{1, 11, 11, 125}, {128, 3, 3, 125}, kSamePadding},
                                                           {{1, 36, 36, 7}, {61, 3, 3, 7}, kSamePadding},
                                                           {{1, 36, 36, 8}, {64, 3, 3, 8}, kSamePadding},
                                                           {{2, 29, 29, 12}, {124, 3, 3, 12}, kSamePadding},
                                                           {{16, 9, 9, 13}, {121, 3, 3, 13}, kSamePadding}}) {
    SCOPED_TRACE(fmt::format("{} by {}", to_string(xs), to_string(ws)));
    const ConvGeometry g = conv_geometry(xs, ws, o);
    const Quantized w = quantize_weight(random_factor(ws, 2).reshape({g.o, g.kh * g.kw, g.c})),
                    x = quantize_rows(random_factor(xs, 1).reshape({g.n, g.h * g.w, g.c}), w.channels);
    const Tensor dy = random_factor({g.n, g.oh * g.ow, g.o}, 3);
    const Quantized by_channels = quantize_rows(dy, w.rows), by_rows = quantize_channels(dy, x.rows),
                    pairs_of_w = pair_rows(w), pairs_of_x = pair_rows(x);
    const auto there = [&](const Quantized& q) { return moved(q, device_); };
    EXPECT_TRUE(
        same_bits(exact_conv2d(there(x), there(w), {}, xs, ws, o).to(Device{}), exact_conv2d(x, w, {}, xs, ws, o)));
    EXPECT_TRUE(same_bits(exact_conv2d_grad_input(there(by_channels), there(pairs_of_w), xs, ws, o).to(Device{}),
                          exact_conv2d_grad_input(by_channels, pairs_of_w, xs, ws, o)));
    EXPECT_TRUE(same_bits(exact_conv2d_grad_filter(there(by_rows), there(pairs_of_x), xs, ws, o).to(Device{}),
                          exact_conv2d_grad_filter(by_rows, pairs_of_x, xs, ws, o)));
  }
}

// Portable products: slices that are a chunk, and one slice of two or three chunks, for each tile.
class GpuSlices : public ExactTest {};
INSTANTIATE_TEST_SUITE_P(, GpuSlices, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuSlices);

TEST(ProductPlan, CutsTheseProducts) {
  struct Case {
    SlicedProduct product;
    int tile;
    int64_t slices;
  };
  for (const auto& [p, tile, slices] :
       {Case{{124, 260, 1100}, 0, 1}, {{72, 68, 1044}, 0, 3}, {{4, 4, 720}, 1, 2}, {{4, 4, 540}, 1, 1}}) {
    const ProductPlan plan = plan_product(p.m, p.n, p.k, 1, kFewProcessors);
    EXPECT_EQ(plan.tile, tile) << p.k;
    EXPECT_EQ(plan.slices, slices) << p.k;
  }
  // On one multiprocessor, blocks of the other tiles compute all of k.
  const GpuExtent one{.multiprocessors = 1, .scratch = 256 << 20};
  for (const auto& [m, n, tile] : {std::tuple{124, 60, 1}, {60, 124, 2}}) {
    EXPECT_EQ(plan_product(m, n, 1100, 1, one).tile, tile);
    EXPECT_EQ(plan_product(m, n, 1100, 1, one).slices, 1);
  }
}

TEST_P(GpuSlices, OfMatrices) {
  for (const auto& [m, n, k] : {SlicedProduct{124, 260, 1100},
                                {124, 60, 1100},
                                {125, 61, 1101},
                                {60, 124, 1100},
                                {61, 125, 1101},
                                {68, 132, 0},
                                {72, 68, 1044},
                                {4, 4, 720},
                                {4, 4, 540},
                                {5, 7, 721},
                                {5, 7, 541}})
    for (const bool a_along : {true, false})
      for (const bool b_along : {true, false}) {
        const Tensor a = with_tiny(random_factor(a_along ? Shape{m, k} : Shape{k, m}, 1), m, a_along ? k : 1, 1.0f),
                     b = with_tiny(random_factor(b_along ? Shape{n, k} : Shape{k, n}, 2), n, b_along ? k : 1, -1.0f);
        const auto product = [&](const Tensor& left, const Tensor& right) {
          return matmul(a_along ? left : left.transpose(0, 1), b_along ? right.transpose(0, 1) : right);
        };
        EXPECT_TRUE(same_bits(product(a.to(device_), b.to(device_)).to(Device{}), product(a, b)))
            << m << " by " << n << " by " << k << ", A " << a_along << ", B " << b_along;
      }
}

TEST_P(GpuSlices, OfImages) {
  for (const auto& [xs, ws, o] : std::vector<SlicedImages>{
           {{1, 9, 8, 120}, {260, 3, 3, 120}, kSamePadding},  {{1, 9, 8, 116}, {68, 3, 3, 116}, kSamePadding},
           {{1, 6, 10, 124}, {124, 3, 3, 124}, kSamePadding}, {{1, 11, 11, 123}, {61, 3, 3, 123}, kSamePadding},
           {{1, 11, 11, 61}, {123, 3, 3, 61}, kSamePadding},  {{1, 33, 33, 14}, {61, 3, 3, 14}, kSamePadding},
           {{1, 2, 2, 80}, {4, 3, 3, 80}, kSamePadding},      {{1, 2, 2, 60}, {4, 3, 3, 60}, kSamePadding},
           {{1, 2, 3, 79}, {5, 3, 3, 79}, kSamePadding},      {{1, 2, 3, 58}, {5, 3, 3, 58}, kSamePadding},
           {{1, 9, 8, 260}, {120, 3, 3, 260}, kSamePadding},  {{1, 9, 8, 68}, {116, 3, 3, 68}, kSamePadding},
           {{1, 2, 2, 4}, {80, 3, 3, 4}, kSamePadding},       {{1, 2, 2, 4}, {60, 3, 3, 4}, kSamePadding},
           {{1, 4, 5, 4}, {300, 3, 3, 4}, kStrided},          {{1, 2, 3, 5}, {79, 3, 3, 5}, kSamePadding},
           {{1, 2, 3, 5}, {58, 3, 3, 5}, kSamePadding},       {{1, 33, 33, 28}, {68, 3, 3, 28}, kSamePadding},
           {{2, 23, 23, 8}, {68, 3, 3, 8}, kSamePadding},     {{1, 27, 26, 4}, {4, 3, 3, 4}, kSamePadding},
           {{1, 23, 23, 4}, {4, 3, 3, 4}, kSamePadding},      {{1, 27, 26, 3}, {5, 3, 3, 3}, kSamePadding},
           {{1, 23, 23, 3}, {5, 3, 3, 3}, kSamePadding}}) {
    SCOPED_TRACE(fmt::format("{} by {}", to_string(xs), to_string(ws)));
    const ConvGeometry g = conv_geometry(xs, ws, o);
    const Shape ys{g.n, g.oh, g.ow, g.o};
    const auto same = [&](const Tensor& left, const Tensor& right, const auto& op) {
      return same_bits(op(left.to(device_), right.to(device_)).to(Device{}), op(left, right));
    };
    const Tensor x = random_factor(xs, 1), w = random_factor(ws, 2), dy = random_factor(ys, 3);
    // Tiny rows of pixels are neighbours, so that whole windows are tiny.
    const auto thirds = [](const Tensor& images) {
      return with_tiny(images.clone(), 3, std::max<int64_t>(images.dim(1) / 3, 1) * images.dim(2) * images.dim(3),
                       1.0f);
    };
    EXPECT_TRUE(same(thirds(x), with_tiny(w.clone(), g.o, ws.numel() / g.o, -1.0f),
                     [&](const Tensor& l, const Tensor& r) { return conv2d(l, r, {}, o); }));
    EXPECT_TRUE(same(thirds(dy), with_tiny(w.clone(), g.c, 1, -1.0f),
                     [&](const Tensor& l, const Tensor& r) { return conv2d_grad_input(l, r, xs, o); }));
    EXPECT_TRUE(same(with_tiny(dy.clone(), g.o, 1, 1.0f), with_tiny(x.clone(), g.c, 1, -1.0f),
                     [&](const Tensor& l, const Tensor& r) { return conv2d_grad_filter(l, r, ws, o); }));
  }
}

}  // namespace
}  // namespace elinvar::test
