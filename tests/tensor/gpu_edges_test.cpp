// Products and convolutions on GPUs whose tiles end at every place: with columns that end at every place in a four and
// in either half of a tile, and rows that end in a thread's rows. There are always several tiles side by side, so that
// a store beyond a row destroys the result of a tile that was computed before.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tensor/cuda/product_plan.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/tensor/tiny_lines.h"

namespace elinvar::test {
namespace {

class GpuEdges : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  void expect_same(const std::string& name, const Tensors& inputs,
                   const std::function<Tensor(const Tensors&)>& op) const {
    Tensors sent;
    for (const Tensor& t : inputs) sent.push_back(t.to(device_));
    EXPECT_TRUE(same_bits(op(sent).to(Device{}), op(inputs))) << name;
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, GpuEdges, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuEdges);

// Products of m rows, with k of few terms, for which a GPU with one multiprocessor takes this tile. The columns end in
// the left half of the last tile from `left` on, and in the right one from `right` on.
struct Ends {
  int tile;
  int64_t m, left, right;
};
constexpr Ends kEnds[] = {{0, 76, 801, 865}, {1, 76, 129, 161}, {1, 124, 129, 161}, {2, 44, 65, 97}};

// Calls f(m, n, k): k is a multiple of four, for which 16 bytes are loaded at once, or not.
void for_all_ends(const std::function<void(int64_t, int64_t, int64_t)>& f) {
  for (const Ends& ends : kEnds)
    for (const int64_t first : {ends.left, ends.right})
      for (const int64_t n : {first, first + 1, first + 2, first + 3}) {
        EXPECT_EQ(plan_product(ends.m, n, 8, 1, {.multiprocessors = 1, .scratch = 256 << 20}).tile, ends.tile) << n;
        f(ends.m, n, 8);
        if (ends.tile == 1) f(ends.m, n, 7);
      }
}

TEST_P(GpuEdges, OfMatrices) {
  for_all_ends([&](int64_t m, int64_t n, int64_t k) {
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        const Tensor a = with_tiny(normal(a_turned ? Shape{k, m} : Shape{m, k}, "a"), m, a_turned ? 1 : k, 1.0f),
                     b = with_tiny(normal(b_turned ? Shape{n, k} : Shape{k, n}, "b"), n, b_turned ? k : 1, -1.0f);
        const auto product = [&](const Tensors& t, const Tensor& bias) {
          return matmul(a_turned ? t[0].transpose(0, 1) : t[0], b_turned ? t[1].transpose(0, 1) : t[1], bias);
        };
        const std::string name = to_string(a.shape()) + " by " + to_string(b.shape());
        expect_same(name, {a, b}, [&](const Tensors& t) { return product(t, {}); });
        expect_same(name + " and a bias", {a, b, normal({n}, "bias")},
                    [&](const Tensors& t) { return product(t, t[2]); });
      }
  });
}

TEST_P(GpuEdges, OfConvolutions) {
  for_all_ends([&](int64_t m, int64_t n, int64_t k) {
    const Shape image{1, 4, m / 4, k};
    expect_same("convolution to " + std::to_string(n),
                {with_tiny(normal(image, "x"), m, k, 1.0f), with_tiny(normal({n, 1, 1, k}, "w"), n, k, -1.0f)},
                [](const Tensors& t) { return conv2d(t[0], t[1], {}, {}); });
    expect_same("convolution with a bias to " + std::to_string(n),
                {normal(image, "x"), normal({n, 1, 1, k}, "w"), normal({n}, "bias")},
                [](const Tensors& t) { return conv2d(t[0], t[1], t[2], {}); });
  });
}

TEST_P(GpuEdges, OfGradientsOfImages) {
  for_all_ends([&](int64_t m, int64_t n, int64_t k) {
    expect_same(
        "gradient of an image of " + std::to_string(n),
        {with_tiny(normal({1, 4, m / 4, k}, "dy"), m, k, 1.0f), with_tiny(normal({k, 1, 1, n}, "w"), n, 1, -1.0f)},
        [&](const Tensors& t) {
          return conv2d_grad_input(t[0], t[1], {1, 4, m / 4, n}, {});
        });
  });
}

TEST_P(GpuEdges, OfGradientsOfFilters) {
  for_all_ends([&](int64_t m, int64_t n, int64_t k) {
    expect_same("gradient of a filter of " + std::to_string(n),
                {with_tiny(normal({1, 1, k, m}, "dy"), m, 1, 1.0f), with_tiny(normal({1, 1, k, n}, "x"), n, 1, -1.0f)},
                [&](const Tensors& t) {
                  return conv2d_grad_filter(t[0], t[1], {m, 1, 1, n}, {});
                });
  });
}

}  // namespace
}  // namespace elinvar::test
