// Ops on a GPU whose threads take several elements each: on one with a single multiprocessor, which runs at most 4096
// threads for an op, a thread has three or four elements of these results, as many as compilers unroll loops for.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/ops/batch_norm.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/experts.h"
#include "tensor/ops/extrema.h"
#include "tensor/ops/gather.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/rotary.h"
#include "tensor/ops/route.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/tensor/tiny_lines.h"

namespace elinvar::test {
namespace {

class DeviceLoops : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  // Compares the results of `op` for inputs of this type on the GPU with the CPU's for the same values in float32.
  void expect_same(const std::string& name, DType type, const Tensors& inputs,
                   const std::function<Tensors(const Tensors&)>& op) const {
    Tensors here, sent;
    for (const Tensor& t : inputs) {
      here.push_back(t.to(type).to(DType::f32));
      sent.push_back(t.to(type).to(device_));
    }
    const Tensors expected = op(here), got = op(sent);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i].to(Device{}), expected[i].to(got[i].dtype())))
          << name << " of " << name_of(type) << ", result " << i;
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, DeviceLoops, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceLoops);

constexpr DType kActivations[] = {DType::f32, DType::bf16};

constexpr int64_t kMany = 100003;

// From the second element on, no access of 16 bytes is aligned.
TEST_P(DeviceLoops, FunctionsOfTwoTensors) {
  const Tensors whole =
      make_inputs({{{kMany}, Input::Kind::index, 7}, {{kMany}, Input::Kind::index, 4}}, "whole");  // minus 1
  const Tensor a = normal({kMany}, "a"), b = normal({kMany}, "b");
  const auto check = [&](const Tensor& x, const Tensor& y, auto op, const std::string& name) {
    const bool narrow = y.dtype() == DType::bf16;
    const Tensor x_there = x.to(device_), y_there = y.to(device_);
    const Tensor expected = narrow ? op(x.to(DType::f32), y.to(DType::f32)).to(x.dtype()) : op(x, y);
    for (const int64_t first : {int64_t{0}, int64_t{1}}) {
      const auto part = [first](const Tensor& t) { return t.slice(0, first, kMany); };
      EXPECT_TRUE(same_bits(op(part(x_there), part(y_there)).to(Device{}), part(expected)))
          << name << " of " << name_of(x.dtype()) << " and " << name_of(y.dtype()) << " from " << first;
    }
  };
  const auto check_types = [&]<class Function>() {
    const auto op = [](const Tensor& x, const Tensor& y) { return binary<Function>(x, y); };
    const std::string name = pointwise::kBinaryNames[pointwise::BinaryFunctions::index_of<Function>()];
    check(a, b, op, name);
    check(a, b.to(DType::bf16), op, name);
    check(a.to(DType::bf16), b.to(DType::bf16), op, name);
    for (const DType type : {DType::i32, DType::i64}) check(whole[0].to(type), sub(whole[1].to(type), 1), op, name);
  };
  [&]<class... Functions>(pointwise::List<Functions...>) {
    (check_types.template operator()<Functions>(), ...);
  }(pointwise::BinaryFunctions{});
}

TEST_P(DeviceLoops, Roundings) {
  const Tensor x = normal({kMany}, "x"), narrow = x.to(DType::bf16), x_there = x.to(device_),
               narrow_there = narrow.to(device_);
  EXPECT_TRUE(same_bits(x_there.to(DType::bf16).to(Device{}), narrow));
  EXPECT_TRUE(same_bits(narrow_there.to(DType::f32).to(Device{}), narrow.to(DType::f32)));
}

TEST_P(DeviceLoops, PicksAndTheirSums) {
  const Tensors index = make_inputs({{{5, 43, 64}, Input::Kind::index, 40}, {{190}, Input::Kind::index, 180}}, "index");
  expect_same("gather", DType::f32, {normal({5, 40, 64}, "x"), normal({5, 43, 64}, "dy")}, [&](const Tensors& t) {
    return Tensors{gather(t[0], 1, index[0]), gather_backward(t[1], 1, index[0], 40)};
  });
  const Tensor few = make_inputs({{{1500}, Input::Kind::index, 5}}, "few")[0];
  for (const int64_t cols : {3, 8})
    expect_same("picks of few rows", DType::f32, {normal({1500, cols}, "dy")},
                [&](const Tensors& t) { return Tensors{embedding_backward(t[0], few, 7)}; });
  std::vector<int64_t> ascending;
  for (int64_t i = 0; i < 300; ++i) ascending.push_back(i + i / 4);
  const Tensor rows = Tensor::from(ascending, {300});
  // Rows of single elements, and of pieces of 16 bytes.
  for (const int64_t cols : {70, 384}) {
    expect_same("embedding", DType::f32, {normal({180, cols}, "x"), normal({190, cols}, "dy")}, [&](const Tensors& t) {
      return Tensors{embedding(t[0], index[1]), embedding_backward(t[1], index[1], 180)};
    });
    expect_same("put_rows", DType::f32, {normal({380, cols}, "table"), normal({300, cols}, "rows")},
                [&](const Tensors& t) {
                  Tensor table = t[0].clone();
                  put_rows(t[1], rows, table);
                  return Tensors{table};
                });
  }
}

TEST_P(DeviceLoops, Experts) {
  const IndexShard all{.first = 0, .count = 6, .whole = 6};
  const auto expect_experts = [&](int64_t tokens, int64_t cols, int64_t chosen, int64_t capacity) {
    const Tensor x = with_tiny(normal({tokens, cols}, "x"), tokens, cols, 1.0f),
                 dx = with_tiny(normal({tokens, cols}, "dx"), tokens, cols, -1.0f);
    expect_same("experts", DType::f32, {x, normal({tokens, 6}, "logits"), dx}, [&](const Tensors& t) {
      const Routes r = route(t[1], chosen);
      const Tensor y = dispatch(t[0], {}, r.order, r.start, capacity, all);
      return Tensors{y, dispatch(t[0], r.weight, r.order, r.start, capacity, all),
                     combine(y, {}, r.expert, r.position, all), combine(y, r.weight, r.expert, r.position, all),
                     combine_weight(t[2], y, r.expert, r.position, all)};
    });
  };
  expect_experts(260, 50, 2, 45);
  for (int64_t chosen = 1; chosen <= 6; ++chosen) expect_experts(9, 4, chosen, 5);
  expect_experts(1, 150001, 1, 1);  // a row of many segments
}

TEST_P(DeviceLoops, LossesOfShards) {
  const Tensor targets = Tensor::from<int64_t>(std::vector<int64_t>{3, -100, 0, 12, 7}, {5});
  for (int shards = 1; shards <= 9; ++shards)
    for (const double smoothing : {0.0, 0.1})
      expect_same("losses", DType::f32, {normal({5, 13}, "logits")}, [&](const Tensors& t) {
        const Tensor wanted = targets.to(t[0].device());
        std::vector<Tensor> terms;
        for (int s = 0; s < shards; ++s) {
          const IndexShard shard = shard_of(13, s, shards);
          terms.push_back(cross_entropy_terms(t[0].slice(1, shard.first, shard.first + shard.count), wanted, smoothing,
                                              -100, shard));
        }
        const ShardedCrossEntropy found = cross_entropy_of_terms(terms, wanted, 13, smoothing, -100);
        return Tensors{found.result.loss, found.result.m, found.result.r, found.top1};
      });
}

// The rows have equal elements, and NaN in different places.
TEST_P(DeviceLoops, Extrema) {
  for (const int64_t extent : {1, 2, 3, 4, 7}) {
    Tensor x = make_inputs({{{70, extent, 180}, Input::Kind::index, 4}}, "x")[0].to(DType::f32);
    for (int64_t i = 0; i < x.numel(); i += 61) x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    expect_same("extrema", DType::f32, {x}, [](const Tensors& t) {
      const Extremum most = max(t[0], 1), least = min(t[0], 1);
      return Tensors{most.value, most.index, least.value, least.index};
    });
  }
}

TEST_P(DeviceLoops, Rotary) {
  for (const DType type : kActivations)
    expect_same("rotary", type, {normal({1, 50, 4, 126}, "x")}, [](const Tensors& t) {
      const RotaryAngles angles = rotary_angles(50, 63, {}, 2, DType::f32, t[0].device());
      return Tensors{rotary(t[0], angles, false), rotary(t[0], angles, true)};
    });
}

TEST_P(DeviceLoops, Dropout) {
  for (const DType type : kActivations)
    expect_same("dropout", type, {normal({50021}, "x")},
                [](const Tensors& t) { return Tensors{dropout(t[0], 0.3, {.seed = 5, .step = 2})}; });
}

TEST_P(DeviceLoops, Pools) {
  const PoolAxis h = pool_axis("pool", 30, 3, 1, 1), w = pool_axis("pool", 30, 5, 1, 2);
  // Channels in pieces of 16 bytes or not.
  for (const int64_t channels : {14, 8}) {
    Tensor x = normal({1, 30, 30, channels}, "x");
    for (int64_t i = 0; i < x.numel(); i += 199) x.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = 0; i < x.numel() / 4; i += channels) x.data<float>()[i] = -std::numeric_limits<float>::infinity();
    for (const DType type : kActivations)
      expect_same("pools", type, {x, normal(x.shape(), "dy")}, [&](const Tensors& t) {
        Tensor winner;
        const Tensor y = max_pool(t[0], h, w, &winner);
        Tensors all{y, winner, max_pool_backward(t[1], winner, h, w)};
        for (const bool present_only : {false, true}) {
          all.push_back(avg_pool(t[0], h, w, present_only));
          all.push_back(avg_pool_backward(t[1], h, w, present_only));
        }
        return all;
      });
  }
}

// Windows whose columns end at each step of a loop over them, and of which many contain a position.
TEST_P(DeviceLoops, PoolsOfWideWindows) {
  for (const auto& [kernel, stride] :
       {std::pair{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 2}, {6, 1}, {7, 1}, {7, 3}, {8, 1}, {9, 2}, {15, 4}, {17, 1}}) {
    const PoolAxis h = pool_axis("pool", 4, 2, 1, 1), w = pool_axis("pool", 20, kernel, stride, kernel / 2),
                   few = adaptive_pool_axis("pool", 20, kernel), one = adaptive_pool_axis("pool", 4, 3);
    for (const int64_t channels : {3, 8})
      for (const DType type : kActivations)
        expect_same("pools", type,
                    {normal({1, 4, 20, channels}, "x"), normal({1, h.out, w.out, channels}, "dy"),
                     normal({1, 3, kernel, channels}, "dy")},
                    [&](const Tensors& t) {
                      Tensor winner;
                      const Tensor y = max_pool(t[0], h, w, &winner);
                      Tensors all{y, winner, max_pool_backward(t[1], winner, h, w)};
                      for (const bool present_only : {false, true})
                        all.insert(
                            all.end(),
                            {avg_pool(t[0], h, w, present_only), avg_pool_backward(t[1], h, w, present_only),
                             avg_pool(t[0], one, few, present_only), avg_pool_backward(t[2], one, few, present_only)});
                      return all;
                    });
  }
}

// Sums over so many rows that a second launch adds up those of blocks, by several threads for a column.
TEST_P(DeviceLoops, ColumnsOfManyRows) {
  const int64_t rows = 17000, channels = 20;
  const Tensor x = normal({rows, channels}, "x"), mean = normal({channels}, "mean"), a = normal({channels}, "a"),
               b = normal({channels}, "b");
  for (const DType type : kActivations)
    expect_same("columns", type, {x, normal(x.shape(), "y"), normal(x.shape(), "dy")}, [&](const Tensors& t) {
      const Device device = t[0].device();
      const BatchNormFactors f{.mean = mean.to(device), .inv = a.to(device), .a = a.to(device), .b = b.to(device)};
      const BatchStatistics s = batch_statistics(t[0]);
      Tensors all{column_sum(t[0].reshape({1, rows, channels})), s.mean, s.var};
      for (const ReluMask mask : {ReluMask::none, ReluMask::from_x, ReluMask::from_y}) {
        const BatchNormSums sums = batch_norm_sums(t[2].clone(), t[0], t[1], f, mask, true);
        all.insert(all.end(), {sums.sum_g, sums.sum_gx});
      }
      return all;
    });
}

// Rows that end at each step of the loops over them; channels in pieces of 16 bytes and in pairs, and single ones.
TEST_P(DeviceLoops, ColumnsOfFewRows) {
  for (const int64_t channels : {8, 5})
    for (int64_t rows = 1; rows <= 17; ++rows) {
      const Tensor mean = normal({channels}, "mean"), a = normal({channels}, "a"), b = normal({channels}, "b"),
                   bits =
                       make_inputs({{{mask_bytes(rows * channels)}, Input::Kind::index, 256}}, "bits")[0].to(DType::u8);
      for (const DType type : kActivations)
        expect_same(
            "columns", type,
            {normal({rows, channels}, "x"), normal({rows, channels}, "y"), normal({rows, channels}, "dy")},
            [&](const Tensors& t) {
              const Device device = t[0].device();
              const BatchNormFactors f{
                  .mean = mean.to(device), .inv = a.to(device), .a = a.to(device), .b = b.to(device)};
              const BatchNormSums given{.sum_g = a.to(device), .sum_gx = b.to(device), .g = {}};
              const BatchStatistics s = batch_statistics(t[0]);
              Tensors all{column_sum(t[0].reshape({1, rows, channels})), s.mean, s.var};
              for (const bool relu : {false, true})
                for (const bool residual : {false, true})
                  all.push_back(batch_norm_apply(t[0], f, residual ? t[1] : Tensor(), relu));
              for (const ReluMask mask : {ReluMask::none, ReluMask::from_x, ReluMask::from_y, ReluMask::from_bits}) {
                if (type != DType::f32 && mask == ReluMask::from_bits) continue;
                const Tensor y = mask == ReluMask::from_bits ? bits.to(device) : t[1];
                const BatchNormSums sums = batch_norm_sums(t[2].clone(), t[0], y, f, mask, true);
                all.insert(all.end(), {sums.sum_g, sums.sum_gx, sums.g,
                                       batch_norm_gradient(t[2].clone(), t[0], y, f, &given, mask),
                                       batch_norm_gradient(t[2].clone(), t[0], y, f, nullptr, mask)});
              }
              return all;
            });
    }
}

// Many channels; many positions, whose sums are added up in two levels.
TEST_P(DeviceLoops, DepthwiseConvolutions) {
  for (const auto& [x, w, pad] : {std::tuple{Shape{1, 24, 24, 512}, Shape{512, 5, 5, 1}, 2},
                                  std::tuple{Shape{1, 92, 92, 3}, Shape{3, 3, 3, 1}, 1}}) {
    const ConvOptions options{.pad_h = pad, .pad_w = pad, .groups = x[3]};
    expect_same("convolution", DType::f32, {normal(x, "x"), normal(w, "w"), normal({x[3]}, "bias"), normal(x, "dy")},
                [&](const Tensors& t) {
                  return Tensors{conv2d(t[0], t[1], t[2], options), conv2d(t[0], t[1], {}, options),
                                 conv2d_grad_input(t[3], t[1], t[0].shape(), options),
                                 conv2d_grad_filter(t[3], t[0], t[1].shape(), options)};
                });
  }
  // Rows and sums of chunks that end at each step of a loop.
  for (const auto& [height, width, side] : {std::tuple{3, 1, 1},
                                            {3, 2, 1},
                                            {3, 3, 2},
                                            {2, 4, 3},
                                            {2, 5, 2},
                                            {2, 7, 1},
                                            {530, 1, 1},
                                            {550, 2, 1},
                                            {400, 4, 1},
                                            {500, 4, 1},
                                            {210, 12, 1},
                                            {600, 15, 1},
                                            {620, 16, 1}}) {
    const Shape x{1, height, width, 2}, w{2, 1, side, 1};
    expect_same("rows", DType::f32, {normal(x, "x"), normal(w, "w"), normal({1, height, width - side + 1, 2}, "dy")},
                [&](const Tensors& t) {
                  return Tensors{conv2d(t[0], t[1], {}, {.groups = 2}),
                                 conv2d_grad_input(t[2], t[1], t[0].shape(), {.groups = 2}),
                                 conv2d_grad_filter(t[2], t[0], t[1].shape(), {.groups = 2})};
                });
  }
  // Without images there are no positions.
  expect_same("no images", DType::f32, {Tensor::zeros({0, 5, 5, 800})}, [&](const Tensors& t) {
    return Tensors{conv2d_grad_filter(t[0], t[0], {800, 5, 5, 1}, {.pad_h = 2, .pad_w = 2, .groups = 800})};
  });
}

}  // namespace
}  // namespace elinvar::test
