// Products, convolutions and attention on GPUs, run by the CPU or a GPU: every tile and every way to cut k gives the
// bits of the CPU, and the planner chooses the intended plans.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "tensor/cuda/product_plan.h"
#include "tensor/graph.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar {
namespace {

using test::same_bits;

constexpr GpuExtent kH200{.multiprocessors = 132, .scratch = 256 << 20};
constexpr GpuExtent kSmall{.multiprocessors = 4, .scratch = 64 << 10};  // the emulated GPU

TEST(ProductPlan, LargeProductsTakeTheLargestTileAndAllOfK) {
  const ProductPlan plan = plan_product(4096, 4096, 4096, 1, kH200);
  EXPECT_EQ(plan.tile, 0);
  EXPECT_EQ(plan.slices, 1);
}

TEST(ProductPlan, FewTilesAreCutAlongK) {
  const ProductPlan plan = plan_product(512, 784, 4608, 1, kH200);  // the last stage of a ResNet-50, batch 16
  EXPECT_EQ(plan.slice, kChunk);
  EXPECT_EQ(plan.slices, 9);
  EXPECT_EQ(plan.slices_once, 9);
}

TEST(ProductPlan, KBeyondAGroupIsAlwaysCut) {
  for (const int64_t k : {8193, 100000, 803000})
    for (const int64_t m : {1, 64, 768, 50257}) {
      const ProductPlan plan = plan_product(m, 768, k, 1, kH200);
      EXPECT_LE(plan.slice, kChunk * kGroup);
      EXPECT_GE(plan.slices * plan.slice, k);
      EXPECT_LT((plan.slices - 1) * plan.slice, k);
      EXPECT_TRUE(plan.slices_once == 1 || plan.slices_once * m * 768 * 4 <= kH200.scratch) << m << " by " << k;
      EXPECT_TRUE(plan.slices_once == plan.slices || plan.slice == kChunk * kGroup);
    }
}

TEST(ProductPlan, NoTermsAreOneSlice) {
  const ProductPlan plan = plan_product(3, 4, 0, 2, kH200);
  EXPECT_EQ(plan.slices, 1);
  EXPECT_GT(plan.slice, 0);
}

TEST(ProductPlan, TransposedCopiesSaveTwiceTheirTime) {
  EXPECT_TRUE(copies_transposed(4096, 4096, 4096, kH200));
  EXPECT_TRUE(copies_transposed(8192, 768, 3072, kH200));
  EXPECT_TRUE(copies_transposed(8192, 768, 768, kH200));
  EXPECT_FALSE(copies_transposed(1024, 1024, 1024, kH200));
  EXPECT_FALSE(copies_transposed(64, 4096, 4096, kH200));
  EXPECT_FALSE(copies_transposed(1, 1 << 20, 4096, kH200));
}

class GpuProducts : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!test::is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, GpuProducts, ::testing::ValuesIn(test::devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuProducts);

Tensor random_values(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]) * 3.0f - 1.0f;
  return x;
}

// Every fifth row becomes zero, so that rows of products with it do.
void clear_rows(Tensor& a, int64_t rows, int64_t row_stride, int64_t terms, int64_t stride) {
  for (int64_t i = 0; i < rows; i += 5)
    for (int64_t k = 0; k < terms; ++k) a.data<float>()[i * row_stride + k * stride] = 0.0f;
}

struct Cut {
  int64_t m, n, k;
  int tile;
  int64_t slices, slices_once;
};

TEST_P(GpuProducts, OfEveryPlan) {
  for (const Cut& cut :
       {Cut{250, 252, 24, 0, 1, 1}, Cut{256, 260, 24, 2, 1, 1}, Cut{130, 68, 24, 1, 1, 1}, Cut{61, 64, 1100, 1, 3, 3},
        Cut{8, 64, 9000, 2, 18, 18}, Cut{64, 128, 24584, 1, 4, 2}, Cut{3, 5, 0, 1, 1, 1}}) {
    const std::string name = std::to_string(cut.m) + " by " + std::to_string(cut.n) + " by " + std::to_string(cut.k);
    const ProductPlan plan = plan_product(cut.m, cut.n, cut.k, 1, kSmall);
    EXPECT_EQ(plan.tile, cut.tile) << name;
    EXPECT_EQ(plan.slices, cut.slices) << name;
    EXPECT_EQ(plan.slices_once, cut.slices_once) << name;
    const Tensor a = random_values({cut.m, cut.k}, 1), b = random_values({cut.k, cut.n}, 2),
                 bias = random_values({cut.n}, 3);
    EXPECT_TRUE(same_bits(matmul(a.to(device_), b.to(device_), bias.to(device_)).to(Device{}), matmul(a, b, bias)))
        << name;
  }
}

TEST_P(GpuProducts, OfEveryLayoutInFoursAndNot) {
  for (const int64_t odd : {0, 1})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        const int64_t m = 132 - odd, k = 36 + odd, n = 68 - 3 * odd;
        const Tensor a = a_turned ? random_values({2, k, m}, 1) : random_values({2, m, k}, 1),
                     b = b_turned ? random_values({2, n, k}, 2) : random_values({2, k, n}, 2);
        const auto product = [&](const Tensor& left, const Tensor& right) {
          return matmul(a_turned ? left.transpose(1, 2) : left, b_turned ? right.transpose(1, 2) : right);
        };
        EXPECT_TRUE(same_bits(product(a.to(device_), b.to(device_)).to(Device{}), product(a, b)))
            << odd << a_turned << b_turned;
      }
}

// On a GPU with one multiprocessor these take the three tiles, and slices of k that are chunks; on one with many they
// do not.
TEST_P(GpuProducts, OfEveryTileAndLayout) {
  struct Size {
    int64_t m, n, k;  // k of several slices
  };
  constexpr Size kSizes[] = {{68, 68, 2048},
                             {69, 72, 2049},
                             {72, 7, 4100},
                             {69, 8, 4101},
                             {69, 7, 4101},
                             {8, 8, 1100},
                             {12, 6, 1100},
                             {4, 68, 1100},
                             {4, 71, 1100},
                             {4, 8, 9000},
                             {40, 8, 1100},
                             {40, 39, 1100},
                             // whole tiles of each shape, with columns that end at every place in a four
                             {128, 97, 2048},
                             {128, 98, 2048},
                             {128, 99, 2048},
                             {128, 100, 2048},
                             {128, 61, 2048},
                             {128, 62, 2048},
                             {128, 63, 2048},
                             {127, 64, 2047},
                             {132, 61, 2048},
                             {132, 62, 2048},
                             {132, 63, 2048},
                             {132, 64, 2048},
                             {2100, 100, 8},
                             {2100, 130, 8},
                             {1080, 130, 8}};  // several panels of tiles
  for (const Size& size : kSizes)
    for (const int64_t k : std::set<int64_t>{20, 20 + size.n % 4, size.k})
      for (const bool a_turned : {false, true})
        for (const bool b_turned : {false, true}) {
          const int64_t m = size.m, n = size.n;
          Tensor a = random_values(a_turned ? Shape{k, m} : Shape{m, k}, 1);
          clear_rows(a, m, a_turned ? 1 : k, k, a_turned ? m : 1);
          const Tensor b = random_values(b_turned ? Shape{n, k} : Shape{k, n}, 2), bias = random_values({n}, 3);
          const auto product = [&](const Tensor& left, const Tensor& right, const Tensor& added) {
            return matmul(a_turned ? left.transpose(0, 1) : left, b_turned ? right.transpose(0, 1) : right, added);
          };
          const Tensor a_there = a.to(device_), b_there = b.to(device_);
          const std::string name = std::to_string(m) + " by " + std::to_string(n) + " by " + std::to_string(k) +
                                   (a_turned ? ", A turned" : "") + (b_turned ? ", B turned" : "");
          if (k < 1000) {
            EXPECT_TRUE(same_bits(product(a_there, b_there, {}).to(Device{}), product(a, b, {}))) << name;
          }
          EXPECT_TRUE(same_bits(product(a_there, b_there, bias.to(device_)).to(Device{}), product(a, b, bias))) << name;
        }
}

// B is copied transposed on GPUs with few multiprocessors, also when the product is recorded. The last part of it that
// a block copies is not whole either way, and its rows are apart.
TEST_P(GpuProducts, OfTransposedCopies) {
  constexpr int64_t m = 404, n = 100, k = 1540;
  EXPECT_TRUE(copies_transposed(m, n, k, kSmall));
  const Tensor b = random_values({n, k + 4}, 2), b_there = b.to(device_);
  const auto product = [](const Tensor& left, const Tensor& right) {
    return matmul(left, right.slice(1, 4, k + 4).transpose(0, 1));
  };
  for (const bool a_turned : {false, true}) {
    const Tensor a = random_values(a_turned ? Shape{k, m} : Shape{m, k}, 1), a_there = a.to(device_);
    const auto turned = [&](const Tensor& t) { return a_turned ? t.transpose(0, 1) : t; };
    Tensor c;
    Graph graph(device_, {.tensors = {a_there}},
                [&](std::span<const Tensor> given) { c = product(turned(given[0]), b_there); });
    graph.replay({.tensors = {a_there}});
    EXPECT_TRUE(same_bits(c.to(Device{}), product(turned(a), b))) << a_turned;
  }
}

// k of five groups, where a GPU with one multiprocessor computes whole groups. OfEveryPlan does so on the emulated GPU,
// which has less memory for sums.
TEST_P(GpuProducts, OfGroups) {
  if (device_.kind == DeviceKind::emulated)
    GTEST_SKIP() << "the emulated GPU plans chunks here; OfEveryPlan covers groups on it";
  constexpr int64_t k = 5 * kChunk * kGroup;
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      const Tensor a = random_values(a_turned ? Shape{k, 4} : Shape{4, k}, 1),
                   b = random_values(b_turned ? Shape{4, k} : Shape{k, 4}, 2);
      const auto product = [&](const Tensor& left, const Tensor& right) {
        return matmul(a_turned ? left.transpose(0, 1) : left, b_turned ? right.transpose(0, 1) : right);
      };
      EXPECT_TRUE(same_bits(product(a.to(device_), b.to(device_)).to(Device{}), product(a, b))) << a_turned << b_turned;
    }
  const Tensor x = random_values({1, 2, 2, k}, 1), w = random_values({4, 1, 1, k}, 2);
  EXPECT_TRUE(same_bits(conv2d(x.to(device_), w.to(device_), {}, {}).to(Device{}), conv2d(x, w, {}, {})));
  const Tensor dy = x, v = random_values({k, 1, 1, 4}, 3);
  EXPECT_TRUE(same_bits(conv2d_grad_input(dy.to(device_), v.to(device_), {1, 2, 2, 4}, {}).to(Device{}),
                        conv2d_grad_input(dy, v, {1, 2, 2, 4}, {})));
  const Tensor images = random_values({1, k / 128, 128, 4}, 4), gradients = random_values({1, k / 128, 128, 4}, 5);
  EXPECT_TRUE(same_bits(conv2d_grad_filter(gradients.to(device_), images.to(device_), {4, 1, 1, 4}, {}).to(Device{}),
                        conv2d_grad_filter(gradients, images, {4, 1, 1, 4}, {})));
}

// Operands that do not begin at a multiple of 16 bytes.
TEST_P(GpuProducts, OfOperandsThatAreNotAligned) {
  const Tensor a = random_values({33, 40}, 1), b = random_values({41, 36}, 2);
  const auto product = [](const Tensor& left, const Tensor& right) {
    return matmul(left.slice(1, 1, 37), right.slice(0, 5, 41));
  };
  EXPECT_TRUE(same_bits(product(a.to(device_), b.to(device_)).to(Device{}), product(a, b)));
}

struct Convolution {
  Shape x, w;
  ConvOptions options;
};

TEST_P(GpuProducts, OfImages) {
  const ConvOptions same{.pad_h = 1, .pad_w = 1};
  for (const Convolution& c : {
           Convolution{{2, 9, 10, 16}, {24, 3, 3, 16}, same},
           Convolution{{3, 12, 11, 8}, {16, 3, 3, 8}, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
           Convolution{{2, 9, 9, 8}, {12, 1, 1, 8}, {.stride_h = 2, .stride_w = 2}},
           Convolution{{1, 20, 21, 4}, {4, 9, 9, 4}, {.stride_h = 2, .stride_w = 3, .pad_h = 4, .pad_w = 4}},
           Convolution{{1, 11, 13, 12}, {12, 3, 2, 4}, {.stride_h = 3, .dilation_w = 2, .groups = 3}},
           Convolution{{2, 17, 3, 3}, {5, 5, 1, 3}, {.stride_h = 3, .pad_h = 2, .dilation_h = 2}},
           Convolution{{1, 2, 3, 520}, {8, 1, 1, 520}, {}},
           Convolution{{1, 9, 8, 8}, {68, 3, 3, 8}, same},
           Convolution{{1, 9, 8, 68}, {8, 3, 3, 68}, same},
           Convolution{{1, 2, 2, 68}, {8, 1, 1, 68}, {}},
           Convolution{{1, 3, 3, 68}, {4, 1, 1, 68}, {}},
           Convolution{{1, 2, 2, 1100}, {70, 1, 1, 1100}, {}},
           Convolution{{1, 2, 2, 1100}, {6, 1, 1, 1100}, {}},
           Convolution{{1, 5, 8, 1100}, {6, 1, 1, 1100}, {}},
           Convolution{{1, 5, 8, 8}, {1100, 1, 1, 8}, {}},
           Convolution{{1, 20, 55, 8}, {40, 1, 1, 8}, {}},
           Convolution{{1, 9, 8, 68}, {128, 3, 3, 68}, same},
           Convolution{{1, 2, 2, 68}, {1100, 1, 1, 68}, {}},
           Convolution{{1, 40, 40, 68}, {4, 1, 1, 68}, {}},
           Convolution{{1, 9, 8, 2048}, {70, 1, 1, 2048}, {}},
           Convolution{{1, 2, 2, 9000}, {8, 1, 1, 9000}, {}},
           Convolution{{1, 2, 2, 8}, {9000, 1, 1, 8}, {}},
           Convolution{{1, 90, 100, 8}, {4, 1, 1, 8}, {}},
           Convolution{{1, 9, 8, 4100}, {6, 1, 1, 4100}, {}},
           Convolution{{1, 9, 8, 68}, {2048, 1, 1, 68}, {}},
           Convolution{{1, 9, 8, 8}, {4100, 1, 1, 8}, {}},
           Convolution{{1, 32, 64, 68}, {70, 1, 1, 68}, {}},
           Convolution{{1, 82, 50, 8}, {68, 1, 1, 8}, {}},
           Convolution{{1, 9, 8, 457}, {7, 3, 3, 457}, same},
           Convolution{{1, 9, 8, 7}, {457, 3, 3, 7}, same},
           Convolution{{1, 76, 55, 7}, {69, 1, 1, 7}, {}},
           Convolution{{1, 9, 8, 260}, {7, 3, 3, 260}, same},
           Convolution{{1, 9, 8, 260}, {72, 3, 3, 260}, same},
           Convolution{{1, 9, 8, 8}, {260, 3, 3, 8}, same},
           Convolution{{1, 9, 8, 72}, {260, 3, 3, 72}, same},
           Convolution{{1, 30, 30, 5}, {132, 3, 3, 5}, same},
           Convolution{{1, 9, 8, 6}, {132, 3, 3, 6}, same},
           Convolution{{1, 9, 8, 7}, {132, 3, 3, 7}, same},
           Convolution{{2, 4, 4, 6}, {6, 3, 3, 1}, {.stride_h = 2, .pad_h = 1, .pad_w = 1, .groups = 6}},
       }) {
    const std::string name = to_string(c.x) + " by " + to_string(c.w);
    const Tensor x = random_values(c.x, 1), w = random_values(c.w, 2), y = conv2d(x, w, {}, c.options),
                 dy = random_values(y.shape(), 3);
    const Tensor x_there = x.to(device_), w_there = w.to(device_), dy_there = dy.to(device_);
    EXPECT_TRUE(same_bits(conv2d(x_there, w_there, {}, c.options).to(Device{}), y)) << name;
    const Tensor bias = random_values({c.w[0]}, 4);
    EXPECT_TRUE(
        same_bits(conv2d(x_there, w_there, bias.to(device_), c.options).to(Device{}), conv2d(x, w, bias, c.options)))
        << name << ", with bias";
    EXPECT_TRUE(same_bits(conv2d_grad_input(dy_there, w_there, c.x, c.options).to(Device{}),
                          conv2d_grad_input(dy, w, c.x, c.options)))
        << name << ", gradient of the input";
    EXPECT_TRUE(same_bits(conv2d_grad_filter(dy_there, x_there, c.w, c.options).to(Device{}),
                          conv2d_grad_filter(dy, x, c.w, c.options)))
        << name << ", gradient of the filter";
  }
}

struct Heads {
  Shape q, k;
  bool causal;
};

TEST_P(GpuProducts, OfScores) {
  for (const Heads& c : {Heads{{1, 70, 2, 80}, {1, 90, 1, 80}, true},    // two panels of columns
                         Heads{{2, 130, 1, 66}, {2, 65, 1, 66}, false},  // not multiples of four
                         Heads{{1, 3, 1, 8}, {1, 9000, 1, 8}, true},     // several segments and groups of keys
                         Heads{{1, 5, 1, 300}, {1, 6, 1, 300}, true},
                         // three groups of keys for longer heads, and segments
                         Heads{{1, 40, 1, 64}, {1, 16500, 1, 64}, false}, Heads{{1, 3, 1, 61}, {1, 1600, 1, 61}, true},
                         // heads that end at every place in a four
                         Heads{{1, 67, 1, 37}, {1, 70, 1, 37}, true}, Heads{{1, 67, 1, 38}, {1, 70, 1, 38}, false},
                         Heads{{1, 67, 1, 39}, {1, 70, 1, 39}, true}, Heads{{1, 67, 1, 5}, {1, 70, 1, 5}, true},
                         Heads{{1, 67, 1, 6}, {1, 70, 1, 6}, false}, Heads{{1, 67, 1, 7}, {1, 70, 1, 7}, true},
                         Heads{{1, 3, 1, 5}, {1, 9000, 1, 5}, true}, Heads{{1, 8300, 1, 5}, {1, 3, 1, 5}, false},
                         // more heads than blocks take at once (kHeadGroup)
                         Heads{{1, 65, 130, 4}, {1, 1, 130, 4}, false},
                         // groups of queries, and two heads per key head
                         Heads{{1, 8300, 2, 4}, {1, 3, 1, 4}, false}}) {
    const std::string name = to_string(c.q) + " by " + to_string(c.k);
    const Tensor q = random_values(c.q, 1), k = random_values(c.k, 2), v = random_values(c.k, 3),
                 d_o = random_values(c.q, 4);
    const Tensor q_there = q.to(device_), k_there = k.to(device_), v_there = v.to(device_);
    const AttentionResult expected = attention(q, k, v, c.causal, 0.0),
                          got = attention(q_there, k_there, v_there, c.causal, 0.0);
    EXPECT_TRUE(same_bits(got.o.to(Device{}), expected.o)) << name;
    EXPECT_TRUE(same_bits(got.m.to(Device{}), expected.m)) << name;
    EXPECT_TRUE(same_bits(got.r.to(Device{}), expected.r)) << name;
    const AttentionGradients of = attention_backward(d_o, q, k, v, expected, c.causal, 0.0);
    const AttentionGradients of_got =
        attention_backward(d_o.to(device_), q_there, k_there, v_there, got, c.causal, 0.0);
    EXPECT_TRUE(same_bits(of_got.dq.to(Device{}), of.dq)) << name;
    EXPECT_TRUE(same_bits(of_got.dk.to(Device{}), of.dk)) << name;
    EXPECT_TRUE(same_bits(of_got.dv.to(Device{}), of.dv)) << name;
  }
}

}  // namespace
}  // namespace elinvar
