// Ops that may write their result into an operand, whose operand is the last handle on memory of somebody else
// (Tensor::over), such as that of a message: it stays as it is until the result is made.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor/ops/batch_norm.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/pointwise.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"

namespace elinvar::test {
namespace {

// Memory whose owner takes it for something else, here for 0x5a bytes, as soon as no tensor needs it.
class ForeignMemory {
 public:
  explicit ForeignMemory(const Tensor& values) : values_(values.to_contiguous()), memory_(values_.clone()) {}

  // The caller's is the only handle.
  Tensor tensor() {
    const auto reuse = [this](const void*) {
      intact_ = same_bits(memory_, values_);
      std::memset(memory_.raw(), 0x5a, static_cast<size_t>(memory_.bytes()));
      released_ = true;
    };
    return Tensor::over(std::shared_ptr<const void>(memory_.raw(), reuse), memory_.raw(), values_.shape(),
                        values_.dtype());
  }
  bool released() const { return released_; }
  bool intact() const { return intact_; }  // nothing was written to it before

 private:
  Tensor values_, memory_;
  bool released_ = false, intact_ = false;
};

// An op that consumes an operand.
struct Consumer {
  std::string name;
  std::function<Tensor(Tensor)> op;
};

class ForeignOperands : public ::testing::TestWithParam<DType> {
 protected:
  // Enough elements for several threads, and for a release in another one's time.
  static constexpr int64_t kRows = 512, kColumns = 48;

  Tensor values(const std::string& name, const Shape& shape = {kRows, kColumns}) const {
    return normal(shape, name, GetParam());
  }
  Tensor positive(const std::string& name) const { return add(exp(values(name)), 0.5); }
  Tensor of_columns(const std::string& name) const { return values(name, {kColumns}); }

  void expect_kept(const std::vector<Consumer>& consumers) const {
    for (const auto& [name, op] : consumers) {
      SCOPED_TRACE(name);
      const Tensor operand = values("operand of " + name);
      const Tensor expected = op(operand);  // a handle stays here, so that the op takes new memory
      ForeignMemory memory(operand);
      EXPECT_TRUE(same_bits(op(memory.tensor()), expected));
      EXPECT_TRUE(memory.released()) << "the op keeps the operand for ever";
      EXPECT_TRUE(memory.intact());
    }
  }
};
INSTANTIATE_TEST_SUITE_P(, ForeignOperands, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST_P(ForeignOperands, OfDropoutAndSums) {
  const Rng rng{.seed = 3, .step = 1};
  const Tensor term = values("term");
  expect_kept({{"dropout", [&](Tensor x) { return dropout(std::move(x), 0.3, rng); }},
               {"add_to", [&](Tensor x) { return add_to(std::move(x), term); }}});
}

TEST_P(ForeignOperands, OfGradientsOfPointwiseFunctions) {
  const Tensor saved = positive("saved");
  std::vector<Consumer> consumers;
#define ELINVAR_GRADIENT_OF(name, Function) \
  consumers.push_back({#name, [&](Tensor dy) { return unary_backward<pointwise::Function>(std::move(dy), saved); }});
  ELINVAR_UNARY_FUNCTIONS(ELINVAR_GRADIENT_OF, ELINVAR_GRADIENT_OF)
#undef ELINVAR_GRADIENT_OF
  expect_kept(consumers);
}

TEST_P(ForeignOperands, OfGradientsOfBatchNorm) {
  const Tensor x = values("x"), gamma = of_columns("gamma"), beta = of_columns("beta");
  const BatchStatistics s = batch_statistics(x);
  const BatchNormFactors factors = batch_norm_factors(s.mean, s.var, gamma, beta, 1e-5);
  const BatchNormMasked masked = batch_norm_apply_masked(x, factors, values("residual"));
  std::vector<Consumer> consumers;
  for (const auto& [name, y, mask] : {std::tuple{"", Tensor(), ReluMask::none},
                                      {" from x", Tensor(), ReluMask::from_x},
                                      {" from y", masked.y, ReluMask::from_y},
                                      {" from bits", masked.mask, ReluMask::from_bits}}) {
    const BatchNormSums sums = batch_norm_sums(values("dy"), x, y, factors, mask, /*want_g=*/false);
    const auto sums_of = [&, y = y, mask = mask](Tensor dy, bool want_g) {
      return batch_norm_sums(std::move(dy), x, y, factors, mask, want_g);
    };
    consumers.push_back({std::string("g") + name, [=](Tensor dy) { return sums_of(std::move(dy), true).g; }});
    for (const bool want_g : {false, true}) {
      consumers.push_back(
          {std::string("sum of g") + name, [=](Tensor dy) { return sums_of(std::move(dy), want_g).sum_g; }});
      consumers.push_back(
          {std::string("sum of g x") + name, [=](Tensor dy) { return sums_of(std::move(dy), want_g).sum_gx; }});
    }
    const auto gradient = [&, y = y, mask = mask](Tensor dy, const BatchNormSums* with) {
      return batch_norm_gradient(std::move(dy), x, y, factors, with, mask);
    };
    consumers.push_back({std::string("dx") + name, [=](Tensor dy) { return gradient(std::move(dy), &sums); }});
    consumers.push_back(
        {std::string("dx in evaluation") + name, [=](Tensor dy) { return gradient(std::move(dy), nullptr); }});
  }
  expect_kept(consumers);
}

TEST_P(ForeignOperands, OfGradientsOfRowNorms) {
  const Tensor x = values("x"), gamma = of_columns("gamma"), beta = of_columns("beta"), other = values("other");
  std::vector<Consumer> consumers;
  for (const RowNorm kind : {RowNorm::layer, RowNorm::rms}) {
    const RowNormResult saved = kind == RowNorm::layer ? layer_norm(x, gamma, beta, 1e-5) : rms_norm(x, gamma, 1e-5);
    const std::string of = kind == RowNorm::layer ? " of layer_norm" : " of rms_norm";
    const auto backward = [&, kind, saved](Tensor dy, bool want_parameters, Tensor sum) {
      return row_norm_backward(kind, std::move(dy), x, gamma, saved, true, want_parameters, std::move(sum));
    };
    for (const bool parameters : {false, true}) {
      consumers.push_back({"dx" + of, [=](Tensor dy) { return backward(std::move(dy), parameters, {}).dx; }});
      consumers.push_back(
          {"dx with a sum" + of, [=](Tensor dy) { return backward(std::move(dy), parameters, other).dx; }});
      consumers.push_back(
          {"dx, the sum" + of, [=](Tensor sum) { return backward(other, parameters, std::move(sum)).dx; }});
    }
    consumers.push_back({"dgamma" + of, [=](Tensor dy) { return backward(std::move(dy), true, {}).dgamma; }});
    consumers.push_back({"dbeta" + of, [=](Tensor dy) { return backward(std::move(dy), true, {}).dbeta; }});
  }
  expect_kept(consumers);
}

TEST_P(ForeignOperands, OfTheGradientOfCrossEntropy) {
  constexpr int64_t kIgnored = -1;
  std::vector<int64_t> expected(kRows);
  for (int64_t row = 0; row < kRows; ++row)
    expected[static_cast<size_t>(row)] = row % 9 == 0 ? kIgnored : row % kColumns;
  const Tensor targets = Tensor::from(expected, {kRows}), dy = Tensor::scalar(0.7, GetParam());
  const CrossEntropyResult saved = cross_entropy(values("logits"), targets, 0.1, kIgnored);
  const IndexShard shard{.first = kColumns, .count = kColumns, .whole = 2 * kColumns};
  expect_kept(
      {{"whole", [&](Tensor logits) { return cross_entropy_backward(dy, std::move(logits), saved, 0.1, kIgnored); }},
       {"shard", [&](Tensor logits) {
          return cross_entropy_shard_backward(dy, std::move(logits), saved, 0.1, kIgnored, shard);
        }}});
}

}  // namespace
}  // namespace elinvar::test
