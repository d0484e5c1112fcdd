// On GPUs, ops with bfloat16 inputs (tensor/precision.h) compute the CPU's results for the widened values in float32,
// and round each bfloat16 result once: bit for bit.
#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tensor/ops/batch_norm.h"
#include "tensor/ops/column_sum.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/top1_correct.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/rotary.h"
#include "tensor/ops/upsample.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

class Bfloat16 : public testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  Tensor there(const Tensor& t) const { return t.to(device_); }

  // Compares `op` of the inputs on the GPU, with those in `narrow` rounded to bfloat16, with the CPU's result for the
  // same values. The GPU's results must have `types`.
  void expect_rounded(const std::string& name, Tensors inputs, const std::vector<size_t>& narrow,
                      const std::vector<DType>& types, const std::function<Tensors(const Tensors&)>& op) const {
    SCOPED_TRACE(name);
    Tensors sent = inputs;
    for (Tensor& t : sent) t = there(t);
    for (const size_t i : narrow) {
      const Tensor rounded = inputs[i].to(DType::bf16);
      inputs[i] = rounded.to(DType::f32);
      sent[i] = there(rounded);
    }
    const Tensors expected = op(inputs), got = op(sent);
    ASSERT_EQ(got.size(), types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      EXPECT_EQ(got[i].dtype(), types[i]) << "result " << i;
      EXPECT_TRUE(got[i].device() == device_) << "result " << i;
      const Tensor here = expected[i].dtype() == types[i] ? expected[i] : expected[i].to(types[i]);
      EXPECT_TRUE(same_bits(got[i].to(Device{}), here)) << "result " << i;
    }
  }

  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, Bfloat16, testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bfloat16);

constexpr DType kNarrow = DType::bf16, kWide = DType::f32;

// The type of results that are bfloat16 on the GPU if the op is called with one.
DType narrow_on_gpus(const Tensor& x) { return x.device() == Device{} ? kWide : kNarrow; }

template <class... Functions, class F>
void each_function(pointwise::List<Functions...>, F f) {
  (f.template operator()<Functions>(), ...);
}

TEST_P(Bfloat16, FunctionsOfOneTensor) {
  const Tensor x = normal({7, 39}, "x"), dy = normal({7, 39}, "dy");
  each_function(pointwise::UnaryFunctions{}, [&]<class Function>() {
    const std::string name = pointwise::kUnaryNames[pointwise::UnaryFunctions::index_of<Function>()];
    expect_rounded(name, {x}, {0}, {kNarrow}, [&](const Tensors& t) { return Tensors{unary<Function>(t[0])}; });
    expect_rounded(name + " backward", {dy, x}, {0, 1}, {kNarrow, kNarrow}, [&](const Tensors& t) {
      return Tensors{unary_backward<Function>(t[0], t[1]), unary_backward<Function>(t[0].clone(), t[1])};
    });
  });
  // Begins at an odd place, where accesses of 16 bytes cannot begin.
  expect_rounded("odd place", {x.reshape({273})}, {0}, {kNarrow},
                 [](const Tensors& t) { return Tensors{gelu_tanh(t[0].slice(0, 1, 272))}; });
}

TEST_P(Bfloat16, FunctionsOfTwoTensors) {
  const Tensor a = normal({5, 6, 17}, "a"), b = normal({5, 6, 17}, "b"), row = normal({17}, "row"),
               number = Tensor::scalar(0.3), wide_a = normal({6, 3, 5, 5, 4, 7}, "a"),
               wide_b = normal(wide_a.shape(), "b");
  each_function(pointwise::BinaryFunctions{}, [&]<class Function>() {
    const std::string name = pointwise::kBinaryNames[pointwise::BinaryFunctions::index_of<Function>()];
    const auto plain = [&](const Tensors& t) { return Tensors{binary<Function>(t[0], t[1])}; };
    const auto into = [&](const Tensors& t) {
      Tensor y = t[0].clone();
      binary_into<Function>(y, t[1]);
      return Tensors{y};
    };
    expect_rounded(name, {a, b}, {0, 1}, {kNarrow}, plain);
    expect_rounded(name + ", a branch", {a, b}, {1}, {kWide}, plain);
    expect_rounded(name + ", beside float32", {a, b}, {0}, {kWide}, plain);
    expect_rounded(name + ", a float32 row", {a, row}, {0}, {kWide}, plain);
    expect_rounded(name + ", a row", {a, row}, {0, 1}, {kNarrow}, plain);
    expect_rounded(name + ", a number", {a, number}, {0}, {kNarrow}, plain);
    expect_rounded(name + ", to a number", {number, a}, {1}, {kNarrow}, plain);
    expect_rounded(name + ", in place", {a, b}, {0, 1}, {kNarrow}, into);
    expect_rounded(name + ", float32 into it", {a, row}, {0}, {kNarrow}, into);
    expect_rounded(name + ", into float32", {a, b}, {1}, {kWide}, into);
    expect_rounded(name + ", strided", {a, b}, {0, 1}, {kNarrow}, [&](const Tensors& t) {
      return Tensors{binary<Function>(t[0].transpose(0, 2), t[1].transpose(0, 2))};
    });
    for (const std::vector<size_t>& narrow : {std::vector<size_t>{0}, {1}, {0, 1}})
      expect_rounded(name + ", six dimensions", {wide_a, wide_b}, narrow, {narrow.size() == 2 ? kNarrow : kWide},
                     [&](const Tensors& t) {
                       const auto turned = [](const Tensor& x) { return x.permute({5, 4, 3, 2, 1, 0}); };
                       return Tensors{binary<Function>(turned(t[0]), turned(t[1]))};
                     });
  });
  expect_rounded("a constant", {a}, {0}, {kNarrow, kNarrow}, [](const Tensors& t) {
    Tensor scaled = t[0].clone();
    scale_into(scaled, 0.3);
    return Tensors{mul(t[0], 0.3), scaled};
  });
  expect_rounded("a sum that is moved in", {a, b}, {0, 1}, {kNarrow},
                 [](const Tensors& t) { return Tensors{add_to(t[0].clone(), t[1])}; });
}

TEST_P(Bfloat16, CopiesRoundToNearestEven) {
  Tensor x = normal({1003}, "x");
  x.data<float>()[0] = 1.00390625f;  // a tie, to the even value below
  x.data<float>()[1] = 1.01171875f;  // a tie, to the even value above
  for (const Tensor& t : {x, x.slice(0, 1, 1003), x.slice(0, 0, 1003, 2)}) {
    EXPECT_TRUE(same_bits(there(x).to(kNarrow).to(Device{}), x.to(kNarrow)));
    EXPECT_TRUE(same_bits(there(t).to(kNarrow).to(kWide).to(Device{}), t.to(kNarrow).to(kWide)));
  }
  EXPECT_EQ(x.to(kNarrow).to(kWide).data<float>()[0], 1.0f);
  EXPECT_EQ(x.to(kNarrow).to(kWide).data<float>()[1], 1.015625f);
}

// A warp sums a row in steps of 64, 128 and 256 elements and in segments of 4096. Norms keep rows of up to 1024
// elements in registers if their number is even. The last one has segments for more than half of the lanes that add
// them up.
constexpr int64_t kLengths[] = {1, 40, 100, 150, 201, 300, 601, 1024, 4421, 12500, 150001};
int64_t rows_of(int64_t cols) { return cols < 300 ? 70 : cols < 20000 ? 2 : 1; }

TEST_P(Bfloat16, NormsOfRows) {
  for (const int64_t cols : kLengths) {
    const int64_t rows = rows_of(cols);
    const Tensor x = normal({rows, cols}, "x"), gamma = normal({cols}, "gamma"), beta = normal({cols}, "beta"),
                 dy = normal({rows, cols}, "dy");
    for (const bool narrow_x : {false, true}) {
      const DType type = narrow_x ? kNarrow : kWide;
      std::vector<size_t> narrow;
      if (narrow_x) narrow = {0};
      expect_rounded("layer norm", {x, gamma, beta}, narrow, {kNarrow, kWide, kWide}, [](const Tensors& t) {
        RowNormResult r = layer_norm(t[0], t[1], t[2], 1e-5, narrow_on_gpus(t[0]));
        return Tensors{r.y, r.mean, r.r};
      });
      expect_rounded("RMS norm", {x, gamma}, narrow, {kNarrow, kWide}, [](const Tensors& t) {
        RowNormResult r = rms_norm(t[0], t[1], 1e-5, narrow_on_gpus(t[0]));
        return Tensors{r.y, r.r};
      });
      narrow.push_back(3);
      for (const RowNorm kind : {RowNorm::layer, RowNorm::rms})
        expect_rounded("gradient", {x, gamma, beta, dy}, narrow, {type, kWide, kWide}, [&](const Tensors& t) {
          const RowNormResult saved =
              kind == RowNorm::layer ? layer_norm(t[0], t[1], t[2], 1e-5) : rms_norm(t[0], t[1], 1e-5);
          RowNormGradients g = row_norm_backward(kind, t[3].clone(), t[0], t[1], saved, true, true);
          return Tensors{g.dx, g.dgamma, g.dbeta};
        });
      if (narrow_x) narrow.push_back(4);
      // The gradient of a residual branch is added: both terms have x's type. Tested with and without weights.
      for (const RowNorm kind : {RowNorm::layer, RowNorm::rms})
        expect_rounded("gradient and sum", {x, gamma, beta, dy, normal({rows, cols}, "sum")}, narrow,
                       {type, type, type}, [&](const Tensors& t) {
                         const RowNormResult saved =
                             kind == RowNorm::layer ? layer_norm(t[0], t[1], t[2], 1e-5) : rms_norm(t[0], t[1], 1e-5);
                         const auto dx = [&](const Tensor& weights, const Tensor& sum) {
                           return row_norm_backward(kind, t[3].clone(), t[0], weights, saved, true, false, sum).dx;
                         };
                         const auto both = [&](const Tensor& weights) {
                           if (t[0].device() == device_) return dx(weights, t[4].clone());
                           return add(narrow_x ? dx(weights, {}).to(kNarrow).to(kWide) : dx(weights, {}), t[4]);
                         };
                         return Tensors{both(t[1]), both({}), dx({}, {})};
                       });
    }
  }
  const Tensor x = there(normal({2, 8}, "x"));
  EXPECT_THROW(layer_norm(x.to(kNarrow), {}, {}, 1e-5, kWide), UsageError);
  EXPECT_THROW(add_norm(RowNorm::rms, x.to(kNarrow), x, {}, {}, 1e-5, kNarrow), UsageError);
  EXPECT_THROW(layer_norm(normal({2, 8}, "x"), {}, {}, 1e-5, kNarrow), UsageError);
  EXPECT_THROW(layer_norm(x, there(normal({8}, "gamma")).to(kNarrow), {}, 1e-5, kNarrow), UsageError);
}

// Sums of a float32 stream and an addend, and of a bfloat16 stream, whose sum is rounded before its norm.
TEST_P(Bfloat16, NormsOfSums) {
  for (const int64_t cols : kLengths) {
    const int64_t rows = rows_of(cols);
    const Tensors inputs{normal({rows, cols}, "x"), normal({rows, cols}, "addend"), normal({cols}, "gamma")};
    for (const RowNorm kind : {RowNorm::layer, RowNorm::rms}) {
      const auto parts = [&](AddNormResult made) {
        Tensors all{made.sum, made.norm.y, made.norm.r};
        if (kind == RowNorm::layer) all.push_back(made.norm.mean);
        return all;
      };
      const auto types = [&](DType sum) {
        std::vector<DType> all{sum, kNarrow, kWide};
        if (kind == RowNorm::layer) all.push_back(kWide);
        return all;
      };
      for (const std::vector<size_t>& narrow : {std::vector<size_t>{}, {1}})
        expect_rounded("float32 stream", inputs, narrow, types(kWide), [&](const Tensors& t) {
          return parts(add_norm(kind, t[0], t[1], t[2], {}, 1e-5, narrow_on_gpus(t[0])));
        });
      std::vector<DType> all_wide = types(kWide);
      all_wide[1] = kWide;
      expect_rounded("float32 result", inputs, {1}, all_wide,
                     [&](const Tensors& t) { return parts(add_norm(kind, t[0], t[1], t[2], {}, 1e-5, kWide)); });
      expect_rounded("bfloat16 stream", inputs, {0, 1}, types(kNarrow), [&](const Tensors& t) {
        if (t[0].dtype() == kNarrow) return parts(add_norm(kind, t[0], t[1], t[2], {}, 1e-5, kNarrow));
        const Tensor sum = add(t[0], t[1]).to(kNarrow).to(kWide);
        return parts({sum, kind == RowNorm::layer ? layer_norm(sum, t[2], {}, 1e-5) : rms_norm(sum, t[2], 1e-5)});
      });
    }
  }
}

TEST_P(Bfloat16, Losses) {
  const Tensor targets = Tensor::from<int64_t>(std::vector<int64_t>{3, -100, 0, 100, 64}, {5});
  for (const int64_t classes : {101, 150, 200, 300, 601, 4421, 12500, 150001})
    for (const double smoothing : {0.0, 0.1}) {
      const int64_t rows = classes < 20000 ? 5 : 1;
      expect_rounded("loss", {normal({rows, classes}, "logits"), targets.slice(0, 0, rows), Tensor::scalar(0.7)}, {0},
                     {kWide, kWide, kWide, kNarrow, kNarrow}, [&](const Tensors& t) {
                       const CrossEntropyResult r = cross_entropy(t[0], t[1], smoothing, -100);
                       return Tensors{r.loss, r.m, r.r, cross_entropy_backward(t[2], t[0], r, smoothing, -100),
                                      cross_entropy_backward(t[2], t[0].clone(), r, smoothing, -100)};
                     });
    }
  expect_rounded("hits", {normal({5, 101}, "logits"), targets}, {0}, {DType::u8},
                 [](const Tensors& t) { return Tensors{top1_correct(t[0], t[1], -100)}; });
}

TEST_P(Bfloat16, LossesOfShards) {
  const Tensor targets = Tensor::from<int64_t>(std::vector<int64_t>{3, -100, 20, 100, 64}, {5});
  for (const int64_t classes : {85, 150, 300, 4421, 150001})
    for (const double smoothing : {0.0, 0.1}) {
      const int64_t rows = classes < 20000 ? 5 : 1;
      expect_rounded("numbers of a shard", {normal({rows, classes}, "logits"), targets.slice(0, 0, rows)}, {0}, {kWide},
                     [&](const Tensors& t) {
                       return Tensors{cross_entropy_terms(t[0], t[1], smoothing, -100,
                                                          {.first = 17, .count = classes, .whole = classes + 40})};
                     });
    }
}

TEST_P(Bfloat16, SumsAreFloat32) {
  expect_rounded("sums", {normal({3, 150, 20}, "x")}, {0}, {kWide, kWide, kWide, kWide, kWide}, [](const Tensors& t) {
    return Tensors{column_sum(t[0], 3.0), sum_to(t[0], {20}), sum(t[0]), sum(t[0], {1}, false), mean(t[0], {2}, false)};
  });
  expect_rounded("sums of many rows", {normal({1, 9000, 3}, "x")}, {0}, {kWide},
                 [](const Tensors& t) { return Tensors{column_sum(t[0], 3.0)}; });
}

TEST_P(Bfloat16, DropoutAndRotary) {
  const Tensor x = normal({2, 5, 3, 14}, "x");
  expect_rounded("dropout", {x}, {0}, {kNarrow, kNarrow}, [](const Tensors& t) {
    const Rng rng{.seed = 5, .step = 2};
    return Tensors{dropout(t[0], 0.3, rng), dropout(t[0].clone(), 0.3, rng)};
  });
  expect_rounded("rotary", {x}, {0}, {kNarrow, kNarrow}, [](const Tensors& t) {
    const RotaryAngles angles = rotary_angles(5, 7, {}, 2, kWide, t[0].device());
    return Tensors{rotary(t[0], angles, false), rotary(t[0], angles, true)};
  });
}

TEST_P(Bfloat16, BatchNorm) {
  // Channels in pairs and in pieces of 16 bytes, and an odd number of them. The second has more leaves than one launch
  // reduces.
  for (const Shape& shape : {Shape{3, 7, 5, 24}, Shape{1, 90, 100, 21}}) {
    const Tensor x = normal(shape, "x"), residual = normal(shape, "residual"), dy = normal(shape, "dy"),
                 gamma = normal({shape[3]}, "gamma"), beta = normal({shape[3]}, "beta");
    expect_rounded("statistics", {x}, {0}, {kWide, kWide}, [](const Tensors& t) {
      const BatchStatistics s = batch_statistics(t[0]);
      return Tensors{s.mean, s.var};
    });
    for (const bool relu : {false, true})
      for (const bool added : {false, true})
        for (const bool training : {false, true}) {
          const ReluMask mask = !relu ? ReluMask::none : added ? ReluMask::from_y : ReluMask::from_x;
          expect_rounded("forward", {x, gamma, beta, residual}, {0, 3}, {kNarrow}, [&](const Tensors& t) {
            const BatchStatistics s = batch_statistics(t[0]);
            const BatchNormFactors f = batch_norm_factors(s.mean, s.var, t[1], t[2], 1e-5);
            return Tensors{batch_norm_apply(t[0], f, added ? t[3] : Tensor(), relu)};
          });
          // y is an input: the mask reads the rounded value.
          const std::vector<DType> types{kWide, kWide, kNarrow, kNarrow};
          expect_rounded("backward", {x, gamma, beta, dy, residual}, {0, 3, 4}, types, [&](const Tensors& t) {
            const BatchStatistics s = batch_statistics(t[0]);
            const BatchNormFactors f = batch_norm_factors(s.mean, s.var, t[1], t[2], 1e-5);
            const BatchNormSums sums = batch_norm_sums(t[3].clone(), t[0], t[4], f, mask, true);
            return Tensors{sums.sum_g, sums.sum_gx, sums.g,
                           batch_norm_gradient(t[3].clone(), t[0], t[4], f, training ? &sums : nullptr, mask)};
          });
        }
  }
}

TEST_P(Bfloat16, Pools) {
  const PoolAxis h = pool_axis("pool", 9, 3, 2, 1), w = pool_axis("pool", 8, 3, 2, 1),
                 whole = adaptive_pool_axis("pool", 9, 1), half = adaptive_pool_axis("pool", 8, 3);
  const Tensor x = normal({2, 9, 8, 5}, "x"), dy = normal({2, 5, 4, 5}, "dy"), adaptive = normal({2, 1, 3, 5}, "dy");
  expect_rounded("max", {x, dy}, {0, 1}, {kNarrow, kWide, kNarrow}, [&](const Tensors& t) {
    Tensor winner;
    const Tensor y = max_pool(t[0], h, w, &winner);
    return Tensors{y, winner, max_pool_backward(t[1], winner, h, w)};
  });
  for (const bool present_only : {false, true})
    expect_rounded("mean", {x, dy, adaptive}, {0, 1, 2}, {kNarrow, kNarrow, kNarrow, kNarrow}, [&](const Tensors& t) {
      return Tensors{avg_pool(t[0], h, w, present_only), avg_pool_backward(t[1], h, w, present_only),
                     avg_pool(t[0], whole, half, present_only), avg_pool_backward(t[2], whole, half, present_only)};
    });
  // Windows of more than a segment's elements.
  const PoolAxis all = adaptive_pool_axis("pool", 70, 1);
  expect_rounded("mean of many", {normal({1, 70, 70, 3}, "x"), normal({1, 1, 1, 3}, "dy")}, {0, 1}, {kNarrow, kNarrow},
                 [&](const Tensors& t) {
                   return Tensors{avg_pool(t[0], all, all, true), avg_pool_backward(t[1], all, all, true)};
                 });
}

TEST_P(Bfloat16, Upsampling) {
  const Tensor x = normal({2, 3, 5, 6}, "x"), dy = normal({2, 6, 11, 6}, "dy");
  for (const bool linear : {false, true}) {
    const UpsampleAxis h{3, 6, linear}, w{5, 11, linear};
    expect_rounded(linear ? "bilinear" : "nearest", {x, dy}, {0, 1}, {kNarrow, kNarrow}, [&](const Tensors& t) {
      return Tensors{upsample(t[0], h, w), upsample_backward(t[1], h, w)};
    });
  }
}

TEST(Bfloat16OnTheCpu, IsForStorage) {
  const Tensor x = Tensor::zeros({2, 2}).to(DType::bf16);
  const auto words = [](auto call) { return message_of<UsageError>(call); };
  EXPECT_NE(words([&] { gelu(x); }).find("[gelu] float32 or float64 expected, got bfloat16"), std::string::npos);
  EXPECT_NE(words([&] { add(x, x); }).find("got bfloat16"), std::string::npos);
  EXPECT_NE(words([&] { layer_norm(x, {}, {}, 1e-5); }).find("got bfloat16"), std::string::npos);
  EXPECT_NE(words([&] { dropout(x, 0.1, {}); }).find("got bfloat16"), std::string::npos);
  EXPECT_NE(words([&] { sum(x); }).find("got bfloat16"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
