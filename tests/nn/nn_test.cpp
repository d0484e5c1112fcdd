// Parameters, initialisers and decay exemption.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/reduce.h"
#include "nn/conv.h"
#include "nn/dropout.h"
#include "nn/initializers.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "tensor/base/check.h"
#include "tensor/isa.h"

namespace elinvar {
namespace {

Tensor drawn(const Initializer& init, const Shape& shape, uint64_t key) {
  Tensor t = Tensor::empty(shape);
  init(t, key);
  return t;
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

Moments moments(const Tensor& t) {
  Moments m;
  const auto n = static_cast<double>(t.numel());
  for (float x : t.span<float>()) m.mean += x / n;
  for (float x : t.span<float>()) {
    m.deviation += (x - m.mean) * (x - m.mean) / n;
    m.largest = std::max(m.largest, std::abs(double{x}));
  }
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// Tolerances of moments are 2 to 5 standard errors of the sample. The draws are a function of the key, so the test is
// deterministic.
TEST(Initializers, NormalHasItsMoments) {
  const Moments m = moments(drawn(init::normal(0.02, 0.5), {300, 333}, 7));
  EXPECT_NEAR(m.mean, 0.5, 3e-4);        // 4.7 standard errors
  EXPECT_NEAR(m.deviation, 0.02, 2e-4);  // 4.5
}

TEST(Initializers, UniformStaysInItsBound) {
  const Moments m = moments(drawn(init::fan_in_uniform(), {64, 3, 3, 16}, 7));
  EXPECT_LE(m.largest, 1.0 / 12);
  EXPECT_GT(m.largest, 0.99 / 12);
  EXPECT_NEAR(m.deviation, 1.0 / 12 / std::sqrt(3.0), 1e-3);  // 4.5 standard errors
}

TEST(Initializers, KaimingNormalUsesFanOut) {
  const Moments m = moments(drawn(init::kaiming_normal(), {64, 3, 3, 16}, 7));
  EXPECT_NEAR(m.deviation, std::sqrt(2.0 / (64 * 9)), 1e-3);  // 2.3 standard errors
}

TEST(Initializers, XavierUniformUsesBothFans) {
  const Moments m = moments(drawn(init::xavier_uniform(), {64, 3, 3, 16}, 7));
  const double bound = std::sqrt(6.0 / (9 * 16 + 64 * 9));
  EXPECT_LE(m.largest, bound * (1 + 0x1p-23));
  EXPECT_GT(m.largest, 0.99 * bound);
}

TEST(Initializers, AnElementDependsOnItsIndexAlone) {
  for (const Initializer& init : {init::normal(1.0), init::uniform(1.0)}) {
    const Tensor all = drawn(init, {100001}, 3);
    for (const int threads : {1, 2, 3}) {
      CpuStream stream(threads);
      const StreamScope scope(stream);
      for (const int64_t n : {1, 2, 3, 5, 50000}) {
        const Tensor part = drawn(init, {n}, 3);
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(part.data<float>()[i], all.data<float>()[i]) << i;
      }
    }
  }
}

// Returns W W^T or W^T W, whichever is smaller, with the weight as a matrix (first extent, all others).
std::vector<double> smaller_gram(const Tensor& w, int64_t* size) {
  const int64_t rows = w.dim(0), columns = w.numel() / rows, n = std::min(rows, columns), m = w.numel() / n;
  const float* x = w.data<float>();
  const auto at = [&](int64_t i, int64_t k) {
    return double{rows <= columns ? x[i * columns + k] : x[k * columns + i]};
  };
  std::vector<double> gram;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < m; ++k) sum += at(i, k) * at(j, k);
      gram.push_back(sum);
    }
  *size = n;
  return gram;
}

TEST(Initializers, OrthogonalHasOrthonormalRowsOrColumns) {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{5, 3}, Shape{3, 5}, Shape{64, 64}, Shape{8, 3, 3, 2}, Shape{40, 3, 3, 4}})
    for (const double gain : {1.0, 2.5}) {
      SCOPED_TRACE(to_string(shape));
      int64_t n = 0;
      // Q is made in double and rounded to float32, which changes a product of two rows by 2^-23 gain^2 at most.
      const std::vector<double> gram = smaller_gram(drawn(init::orthogonal(gain), shape, 7), &n);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) EXPECT_NEAR(gram[i * n + j], i == j ? gain * gain : 0, 0x1p-23 * gain * gain);
    }
  EXPECT_THROW(drawn(init::orthogonal(), {7}, 7), UsageError);
}

// Compares with Gram-Schmidt on the same normal numbers: with a positive diagonal of R, Q is unique.
TEST(Initializers, OrthogonalIsTheQOfNormalNumbers) {
  constexpr int64_t kRows = 9, kColumns = 4;
  const Tensor drawn_from = drawn(init::normal(1.0), {kRows, kColumns}, 11);
  const Tensor found = drawn(init::orthogonal(), {kRows, kColumns}, 11);
  std::vector<std::vector<double>> q;
  for (int64_t k = 0; k < kColumns; ++k) {
    std::vector<double> column;
    for (int64_t i = 0; i < kRows; ++i) column.push_back(drawn_from.data<float>()[i * kColumns + k]);
    for (const std::vector<double>& other : q) {
      double along = 0, norm = 0;
      for (int64_t i = 0; i < kRows; ++i) along += other[i] * column[i], norm += other[i] * other[i];
      for (int64_t i = 0; i < kRows; ++i) column[i] -= along / norm * other[i];
    }
    double norm = 0;
    for (const double x : column) norm += x * x;
    for (double& x : column) x /= std::sqrt(norm);
    // Elements below 1 in magnitude, rounded to float32 once.
    for (int64_t i = 0; i < kRows; ++i) EXPECT_NEAR(found.data<float>()[i * kColumns + k], column[i], 0x1p-24);
    q.push_back(std::move(column));
  }
}

// Frozen: another digest means that every run starts from other values.
TEST(Initializers, ValuesAreFrozenForEveryInstructionSet) {
  const Isa before = current_isa();
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    set_isa(isa);
    EXPECT_EQ(digest(drawn(init::normal(1.0), {100, 123}, 7)).hex(), "3836fdee9ab45d5a32d5eb37ea313936");
    EXPECT_EQ(digest(drawn(init::uniform(1.0), {100, 123}, 7)).hex(), "5dac75b60052162f15bea474784b5449");
    EXPECT_EQ(digest(drawn(init::orthogonal(), {100, 123}, 7)).hex(), "8be4c3eea8d7a1f3780f9105b0693090");
    EXPECT_EQ(digest(drawn(init::orthogonal(), {300, 9}, 7)).hex(), "f01a27140a6f31106a01ba03c6dd7284");
  }
  set_isa(before);
}

TEST(StochasticDepth, LeavesOutWholeSamples) {
  const Var x(Tensor::full({400, 2, 1, 3}, 1.0), /*requires_grad=*/true);
  const StochasticDepth depth{.p = 0.25};
  Context training{.training = true, .rng = {.seed = 3}}, evaluation;
  const Var y = depth(x, training);
  backward(sum(y));
  int kept = 0;
  for (int64_t n = 0; n < 400; ++n) {
    const float first = y.value().data<float>()[6 * n];
    kept += first != 0.0f;
    for (int64_t i = 6 * n; i < 6 * n + 6; ++i) {
      EXPECT_EQ(y.value().data<float>()[i], first == 0.0f ? 0.0f : 1.0f / 0.75f);
      EXPECT_EQ(x.grad().to_contiguous().data<float>()[i], first);
    }
  }
  EXPECT_NEAR(kept, 300, 30);  // more than three deviations of 8.7
  EXPECT_EQ(training.rng.op, 1u);
  EXPECT_EQ(depth(x, evaluation).node(), x.node());
}

TEST(Scope, NamesAndKeysValuesByName) {
  Parameters p, q;
  const Linear a(Scope(p, 1) / "a", 8, 4), b(Scope(p, 1) / "b", 8, 4), b_alone(Scope(q, 1) / "b", 8, 4);
  ASSERT_EQ(p.list.size(), 4u);
  EXPECT_EQ(p.list[3].name, "b.bias");
  EXPECT_EQ(p.count(), 2 * (8 * 4 + 4));
  EXPECT_NE(a.weight.value().data<float>()[0], b.weight.value().data<float>()[0]);
  EXPECT_EQ(digest(b.weight.value()), digest(b_alone.weight.value()));
  Parameters other_seed;
  const Linear c(Scope(other_seed, 2) / "b", 8, 4);
  EXPECT_NE(digest(b.weight.value()), digest(c.weight.value()));
  EXPECT_THROW(Linear(Scope(p, 1) / "a", 8, 4), UsageError);
}

TEST(Parameters, StateIsViewsAndLoadCopies) {
  Parameters p, q;
  const BatchNorm2d norm(Scope(p, 1) / "bn", 3), twin(Scope(q, 2) / "bn", 3);
  StateDict state = p.state();
  EXPECT_EQ(state.size(), 4u);
  state.at("bn.running_mean").data<float>()[1] = 5.0f;
  EXPECT_EQ(norm.running_mean->value.data<float>()[1], 5.0f);
  q.load(state);
  EXPECT_EQ(twin.running_mean->value.data<float>()[1], 5.0f);
  EXPECT_FALSE(twin.running_mean->value.shares_storage(norm.running_mean->value));
  state.erase("bn.weight");
  EXPECT_THROW(q.load(state), UsageError);
  state["bn.weight"] = Tensor::zeros({4});
  EXPECT_THROW(q.load(state), UsageError);
  state["bn.weight"] = Tensor::zeros({3});
  state["bn.wieght"] = Tensor::zeros({3});
  EXPECT_THROW(q.load(state), UsageError);
}

TEST(Parameters, ExemptFromDecay) {
  Parameters p;
  const Linear a(Scope(p, 1) / "h" / 0, 8, 4), b(Scope(p, 1) / "h" / 1, 8, 4);
  const auto decays = [&] {
    std::string s;
    for (const Parameter& x : p.list) s += x.decay ? '1' : '0';
    return s;
  };
  const auto exempt = [&](std::vector<std::string> entries) { exempt_from_decay(p, entries); };
  EXPECT_EQ(decays(), "1111");
  exempt({"vectors"});
  EXPECT_EQ(decays(), "1010");
  exempt({"h.0.*"});
  EXPECT_EQ(decays(), "0011");
  exempt({"*.bias", "h.1.weight"});
  EXPECT_EQ(decays(), "1000");
  exempt({});
  EXPECT_EQ(decays(), "1111");
  EXPECT_THROW(exempt({"vector"}), UsageError);
  try {
    exempt({"h.0.wieght"});
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'h.0.weight'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace elinvar
