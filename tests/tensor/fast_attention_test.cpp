// Attention on tensor cores (tensor/cuda/fast_attention.h): results agree with portable attention within the rounding
// of factors and weights, and on the interpreter of PTX have the bits of the emulated GPU.
#include "tensor/base/check.h"
#include "tensor/device_description.h"
#include "tensor/ops/attention.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/on_tensor_cores.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/cuda.h"  // last: its macros are not for other headers
#endif

namespace elinvar::test {
namespace {

Tensor rounded_factor(const Tensor& t) { return t.to(DType::bf16).to(DType::f32); }

struct FastCase {
  int64_t batch, tq, tk, heads, kv_heads, size;
  bool causal;
  double scale = 0.0;
};

class FastAttention : public OnTensorCores {
 protected:
  void expect_right(const FastCase& c) const;
};
INSTANTIATE_TEST_SUITE_P(, FastAttention, testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FastAttention);

void FastAttention::expect_right(const FastCase& c) const {
  SCOPED_TRACE(fmt::format("{} queries, {} keys of {} elements", c.tq, c.tk, c.size));
  const Tensor q = normal({c.batch, c.tq, c.heads, c.size}, "q"), k = normal({c.batch, c.tk, c.kv_heads, c.size}, "k"),
               v = normal({c.batch, c.tk, c.kv_heads, c.size}, "v"), d_o = normal(q.shape(), "do");
  const auto results = [&](Device device) {
    const Tensor qs = q.to(device), ks = k.to(device), vs = v.to(device);
    const AttentionResult of = attention(qs, ks, vs, c.causal, c.scale, Precision::bf16);
    const AttentionGradients g = attention_backward(d_o.to(device), qs, ks, vs, of, c.causal, c.scale, Precision::bf16);
    return Tensors{of.o, of.m, of.r, g.dq, g.dk, g.dv};
  };
  const Tensors got = results(device_);
  const AttentionResult of = attention(rounded_factor(q), rounded_factor(k), rounded_factor(v), c.causal, c.scale);
  const AttentionGradients g = attention_backward(rounded_factor(d_o), rounded_factor(q), rounded_factor(k),
                                                  rounded_factor(v), of, c.causal, c.scale);
  // Weights are rounded to bfloat16 as well.
  expect_close("o", got[0], of.o, 4e-3, DType::bf16);
  expect_close("r", got[2], of.r, 1e-5);
  expect_close("dq", got[3], g.dq, 6e-3, DType::bf16);
  expect_close("dk", got[4], g.dk, 6e-3, DType::bf16);
  expect_close("dv", got[5], g.dv, 6e-3, DType::bf16);
  const auto expect_same = [&](const Tensors& others, const char* what) {
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i].to(Device{}), others[i].to(Device{}))) << what << ", result " << i;
  };
  expect_same(results(device_), "a second time");
#ifdef ELINVAR_EMULATION
  // Which sums tensor cores round is known for these two.
  if (describe(device_).model == "PTX interpreter") expect_same(results({DeviceKind::emulated}), "emulated");
#endif
}

TEST_P(FastAttention, OfShapes) {
  for (const FastCase& c : {FastCase{1, 70, 70, 2, 2, 16, true, 0.0}, FastCase{2, 5, 9, 4, 2, 24, true, 0.3},
                            FastCase{1, 66, 130, 2, 1, 33, false, 0.0}, FastCase{1, 40, 40, 1, 1, 64, true, 0.0},
                            FastCase{1, 35, 67, 1, 1, 72, true, 0.0}, FastCase{1, 70, 100, 1, 1, 32, true, -0.2},
                            FastCase{1, 140, 150, 2, 1, 64, true, 0.0}, FastCase{1, 70, 130, 1, 1, 128, false, -0.2},
                            FastCase{1, 135, 140, 1, 1, 128, true, 0.0},
                            // heads that end within a pair of elements
                            FastCase{1, 5, 9, 1, 1, 31, false, 0.0}, FastCase{1, 40, 70, 1, 1, 63, true, 0.0},
                            FastCase{1, 35, 67, 1, 1, 127, true, 0.0}, FastCase{1, 160, 160, 2, 2, 33, true, 0.0},
                            FastCase{1, 52, 52, 1, 1, 128, true, 0.0}, FastCase{1, 53, 54, 1, 1, 64, false, 0.0}})
    expect_right(c);
}

// Heads that end at every place of a thread's elements, with times that end at every place of its rows. A store beyond
// the end is to another head or beyond the tensor.
TEST_P(FastAttention, OfHeadsThatEndAnywhere) {
  constexpr int64_t kTimes[] = {4, 12, 20, 28, 36, 44, 52, 60};
  for (int64_t eight = 0; eight < 16; ++eight)
    for (const int64_t size : {8 * eight + 1, 8 * eight + 2})
      expect_right({1, kTimes[eight % 8], kTimes[eight % 8], 2, 1, size, false});
}

// Masks begin at every place of a thread's elements.
TEST_P(FastAttention, OfMasksAtEveryPlace) {
  for (const int64_t size : {32, 64, 128})
    for (const int64_t ahead : {0, 5, 8, 16, 24}) expect_right({1, 100, 100 + ahead, 1, 1, size, true});
}

#ifdef ELINVAR_EMULATION
TEST_P(FastAttention, ReadsSharedMemoryWithoutBankConflicts) {
  if (!emulated()) GTEST_SKIP() << "only the emulated GPU counts bank conflicts";
  const emulation::MatrixLoads before = emulation::matrix_loads();
  for (const int64_t size : {32, 64, 128}) {
    const Tensor qkv = there(normal({1, 130, 3, 1, size}, "qkv")), d_o = there(normal({1, 130, 1, size}, "do"));
    const AttentionResult result = self_attention(qkv, true, 0.0, Precision::bf16);
    self_attention_backward(d_o, qkv, result, true, 0.0, Precision::bf16);
  }
  const emulation::MatrixLoads after = emulation::matrix_loads();
  EXPECT_GT(after.accesses, before.accesses);
  EXPECT_EQ(after.conflicts, before.conflicts);
}
#endif

TEST_P(FastAttention, OfPartsOfOneTensorWithinATolerance) {
  const Tensor qkv = normal({2, 33, 3, 2, 20}, "qkv"), d_o = normal({2, 33, 2, 20}, "do");
  const AttentionResult got = self_attention(there(qkv), true, 0.0, Precision::bf16),
                        expected = self_attention(rounded_factor(qkv), true, 0.0);
  expect_close("o", got.o, expected.o, 4e-3, DType::bf16);
  expect_close("d_qkv", self_attention_backward(there(d_o), there(qkv), got, true, 0.0, Precision::bf16),
               self_attention_backward(rounded_factor(d_o), rounded_factor(qkv), expected, true, 0.0), 6e-3,
               DType::bf16);
}

// Large scores, where one key has all the weight, and values that are not finite.
TEST_P(FastAttention, ToOneKeyAndToNaN) {
  const Tensor q = Tensor::full({1, 40, 1, 16}, 30.0), v = normal({1, 40, 1, 16}, "v");
  Tensor k = Tensor::zeros({1, 40, 1, 16});
  for (int64_t d = 0; d < 16; ++d) k.data<float>()[7 * 16 + d] = 30.0f;
  const auto o_of = [&](bool causal) {
    return attention(there(q), there(k), there(v), causal, 1.0, Precision::bf16).o.to(Device{}).to(DType::f32);
  };
  const Tensor o = o_of(false);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t d = 0; d < 16; ++d)
      EXPECT_EQ(o.data<float>()[i * 16 + d], static_cast<float>(bf16(v.data<float>()[7 * 16 + d])));
  k.data<float>()[16 * 39] = NAN;
  const Tensor broken = o_of(true);
  EXPECT_FALSE(std::isnan(broken.data<float>()[38 * 16])) << "it does not see the key";
  EXPECT_TRUE(std::isnan(broken.data<float>()[39 * 16]));
}

}  // namespace
}  // namespace elinvar::test
