// Attention in float32 on GPUs, where each number that a kernel computes for a pair of query and key shows in an
// element of a result of its own: masks at every place, and scores whose exponential depends on the last bit of each
// coefficient of exp.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tensor/ops/attention.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/tensor/deciding_arguments.h"

namespace elinvar::test {
namespace {

class GpuAttention : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  // Compares attention over the elements of each head from `first` on. With 1, no row begins at a multiple of 16 bytes.
  void expect_same(const std::string& name, const Tensors& of_whole_heads, bool causal, double scale,
                   int64_t first = 0) const {
    Tensors here, there;
    for (const Tensor& t : of_whole_heads) {
      here.push_back(t.slice(3, first, t.dim(3)));
      there.push_back(t.to(device_).slice(3, first, t.dim(3)));
    }
    const AttentionResult expected = attention(here[0], here[1], here[2], causal, scale),
                          got = attention(there[0], there[1], there[2], causal, scale);
    const AttentionGradients of = attention_backward(here[3], here[0], here[1], here[2], expected, causal, scale),
                             of_got = attention_backward(there[3], there[0], there[1], there[2], got, causal, scale);
    const auto check = [&](const char* what, const Tensor& result, const Tensor& right) {
      EXPECT_TRUE(same_bits(result.to(Device{}), right)) << what << " of " << name;
    };
    check("o", got.o, expected.o);
    check("m", got.m, expected.m);
    check("r", got.r, expected.r);
    check("dq", of_got.dq, of.dq);
    check("dk", of_got.dk, of.dk);
    check("dv", of_got.dv, of.dv);
  }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, GpuAttention, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuAttention);

// A store beyond the end of a head is to the next head, which another block computes, or beyond the tensor.
TEST_P(GpuAttention, HeadsAndTimesThatEndAnywhere) {
  for (const int64_t time : {5, 6, 7, 8, 33, 34, 35, 36})
    for (const int64_t size :
         time == 36 ? std::vector<int64_t>{4, 5, 6, 7, 36, 37, 38, 39} : std::vector<int64_t>{4, 5}) {
      const Shape shape{1, time, 2, size};
      expect_same(to_string(shape), {normal(shape, "q"), normal(shape, "k"), normal(shape, "v"), normal(shape, "do")},
                  false, 0.0);
      if (size % 4 != 0) continue;
      const Shape more{1, time, 2, size + 1};
      expect_same("parts of " + to_string(more),
                  {normal(more, "q"), normal(more, "k"), normal(more, "v"), normal(more, "do")}, false, 0.0, 1);
    }
}

// One head of which element 0 is the score of each key. Each other element belongs to a key or a query: it is a power
// of two in the key's row of k and v or the query's row of d_o, and zero in all others. So o has the weights, dq and dk
// the gradients of scores, and dv the probabilities, each multiplied by a power of two.
struct Separated {
  Tensor q, k, v, d_o;
  Separated(int64_t queries, const std::vector<float>& scores, bool in_fours) {
    const auto keys = static_cast<int64_t>(scores.size());
    const int64_t size = (1 + keys + queries + 3) / 4 * 4 + (in_fours ? 0 : 1);
    const Tensor noise = normal({2, std::max(keys, queries)}, "noise");
    q = Tensor::zeros({1, queries, 1, size}), d_o = Tensor::zeros({1, queries, 1, size});
    k = Tensor::zeros({1, keys, 1, size}), v = Tensor::zeros({1, keys, 1, size});
    for (int64_t i = 0; i < queries; ++i) {
      q.data<float>()[i * size] = 1;
      d_o.data<float>()[i * size] = noise.data<float>()[i];
      for (Tensor* t : {&q, &d_o}) t->data<float>()[i * size + 1 + keys + i] = 0x1p100f;
    }
    for (int64_t j = 0; j < keys; ++j) {
      k.data<float>()[j * size] = scores[static_cast<size_t>(j)];
      v.data<float>()[j * size] = noise.data<float>()[noise.dim(1) + j];
      for (Tensor* t : {&k, &v}) t->data<float>()[j * size + 1 + j] = 0x1p100f;
    }
  }
};

TEST_P(GpuAttention, MasksAtEveryPlace) {
  for (const int64_t ahead : {17, 18, 19, 20})
    for (const bool in_fours : {false, true}) {
      std::vector<float> scores(static_cast<size_t>(66 + ahead));
      for (size_t j = 0; j < scores.size(); ++j) scores[j] = 0.25f * static_cast<float>(j % 7);
      const Separated s(66, scores, in_fours);
      expect_same(std::to_string(ahead) + " keys ahead", {s.q, s.k, s.v, s.d_o}, true, 1.0);
    }
}

// A thread computes the scores of eight keys in each of eight places, for which these are 0 and seven of the arguments.
TEST_P(GpuAttention, ScoresThatDecideTheBitsOfExp) {
  constexpr size_t kArguments = std::size(kDecidingScores);
  for (size_t first = 0; first < kArguments; first += 7)
    for (const bool in_fours : {false, true}) {
      std::vector<float> scores(64);
      for (size_t j = 0; j < scores.size(); ++j)
        if (const size_t place = j % 32 / 4; place != 7) scores[j] = kDecidingScores[(first + place) % kArguments];
      const Separated s(36, scores, in_fours);
      expect_same("scores from " + std::to_string(first), {s.q, s.k, s.v, s.d_o}, false, 1.0);
    }
}

// The scores of key 1 are -inf, so its weights are zero, and its gradients are numbers: places of a tile beyond the
// last query and the last key must not be multiplied by it.
TEST_P(GpuAttention, AKeyOfInfinities) {
  const Shape shape{1, 5, 1, 4};
  const Tensor q = Tensor::full(shape, 1.0), v = normal(shape, "v"), d_o = normal(shape, "do");
  Tensor k = normal(shape, "k");
  for (int d = 0; d < 4; ++d) k.data<float>()[4 + d] = -std::numeric_limits<float>::infinity();
  for (const bool causal : {false, true}) expect_same(causal ? "causal" : "full", {q, k, v, d_o}, causal, 1.0);
}

}  // namespace
}  // namespace elinvar::test
