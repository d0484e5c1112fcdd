// Compares the canonical mathematics with the C library's in float64, and its bits with golden digests: by default over
// every 4097th float32, with ELINVAR_FULL=1 in the environment over all 2^32 (about twenty minutes).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "tensor/digest.h"
#include "tensor/isa.h"
#include "tensor/ops/pointwise.h"

namespace elinvar::test {
namespace {

struct Function {
  const char* name;
  Tensor (*canonical)(const Tensor&);
  double (*exact)(double);
  double ulps;  // the largest error that the function's header states
  const char* sampled;
  const char* full;
};

void PrintTo(const Function& f, std::ostream* out) { *out << f.name; }

const Function kFunctions[] = {
    {"exp", exp, std::exp, 0.98, "b9d549549555ed2a0a32e0225717d0b8", "d8cd5687ee891ba6e4da2336d665ffc6"},
    {"expm1", expm1, std::expm1, 1.44, "ab9b6b16c9ee7899217452c4eeba753c", "fc6a954677a2d24410ac2850d3c2a452"},
    {"log1p", log1p, std::log1p, 1.44, "fbafc848a01f1d0cdae2757e5be22268", "8bf710c93469b940b03e773c29f173c8"},
    {"log", log, std::log, 0.89, "7301a280396b7cee1a1782ef6d59101b", "887e15b4251b1bd2a8105f22783c2523"},
    {"tanh", tanh, std::tanh, 1.34, "f2bce90fa860927dd6e200f7dba7e421", "8d5e39ae47cd3b7adecc42effd64c8ad"},
    {"erf", erf, std::erf, 1.11, "4effecb1f636805eaf52114583890ced", "e71042c1dfd170fc0001ae1961615d4d"},
    {"sin", sin, std::sin, 1.67, "46bc813849b20ebc87e018e4e3a36428", "cbbc9319e7da163ee72cf85a8dc6a9f6"},
    {"cos", cos, std::cos, 1.81, "62c4995a27a28c9fe16e1b7962ea2f0a", "b78f26bf3766b38525f6b4d17dac319e"},
};

constexpr int64_t kBlock = int64_t{1} << 20;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// Returns the floats with bits step * i, for i from `first` on while they are below 2^32, at most kBlock of them.
Tensor floats(uint64_t first, uint64_t step) {
  const uint64_t all = ((uint64_t{1} << 32) + step - 1) / step;
  const auto n = static_cast<int64_t>(std::min<uint64_t>(kBlock, all - first));
  Tensor x = Tensor::empty({n});
  for (int64_t i = 0; i < n; ++i)
    x.data<float>()[i] = std::bit_cast<float>(static_cast<uint32_t>((first + static_cast<uint64_t>(i)) * step));
  return x;
}

// Replaces every NaN by the same one: targets may disagree only on which NaN they return.
void add_values(Hasher& hasher, Tensor y) {
  for (float& v : y.span<float>())
    if (std::isnan(v)) v = std::numeric_limits<float>::quiet_NaN();
  hasher.add(y.raw(), static_cast<size_t>(y.bytes()));
}

double ulp_of(double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// Returns the largest error in units in the last place; infinite if a special value is wrong.
double largest_error(const Function& f, const Tensor& x, const Tensor& y) {
  double largest = 0.0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float in = x.data<float>()[i], out = y.data<float>()[i];
    const double exact = f.exact(in);
    const float rounded = static_cast<float>(exact);
    double error;
    if (std::isnan(rounded)) error = std::isnan(out) ? 0.0 : kInfinity;
    else if (std::isinf(rounded) || rounded == 0.0f) error = same(out, rounded) ? 0.0 : kInfinity;
    else error = std::abs(out - exact) / ulp_of(exact);
    if (!(error <= f.ulps)) ADD_FAILURE() << f.name << "(" << in << ") = " << out << ", off by " << error << " ulp";
    largest = std::max(largest, error);
    if (::testing::Test::HasFailure()) break;
  }
  return largest;
}

class Mathematics : public ::testing::TestWithParam<Function> {
 protected:
  void TearDown() override { set_isa(available_isas().back()); }
};

TEST_P(Mathematics, SampleIsCloseAndHasTheGoldenBitsOnEveryTarget) {
  const Function& f = GetParam();
  const Tensor x = floats(0, 4097);
  for (Isa isa : available_isas()) {
    set_isa(isa);
    const Tensor y = f.canonical(x);
    if (isa == available_isas().back()) largest_error(f, x, y);
    Hasher hasher;
    add_values(hasher, y);
    EXPECT_EQ(hasher.digest().hex(), f.sampled) << name_of(isa);
  }
}

TEST_P(Mathematics, EveryFloatHasTheGoldenBits) {
  if (std::getenv("ELINVAR_FULL") == nullptr) GTEST_SKIP() << "set ELINVAR_FULL=1 to try all 2^32 inputs";
  const Function& f = GetParam();
  Hasher hasher;
  double largest = 0.0;
  for (uint64_t first = 0; first < uint64_t{1} << 32 && !HasFailure(); first += kBlock) {
    const Tensor x = floats(first, 1), y = f.canonical(x);
    largest = std::max(largest, largest_error(f, x, y));
    add_values(hasher, y);
  }
  RecordProperty("largest_error", std::to_string(largest));
  EXPECT_EQ(hasher.digest().hex(), f.full);
}

INSTANTIATE_TEST_SUITE_P(All, Mathematics, ::testing::ValuesIn(kFunctions),
                         [](const auto& test) { return std::string(test.param.name); });

// A lane gives the same bits whether alone or with others, at any place: huge angles take another path than small ones.
TEST(MathematicsLanes, DoNotDisturbEachOther) {
  const std::vector<float> values = {0.5f,       3e30f, -1.0f,  std::numeric_limits<float>::infinity(),
                                     1048577.0f, -0.0f, 1e-40f, -7e20f};
  std::vector<float> mixed;
  for (int i = 0; i < 37; ++i) mixed.push_back(values[static_cast<size_t>(i * 5 % 8)]);
  for (const Function& f : kFunctions) {
    const Tensor together = f.canonical(Tensor::from(mixed, {37}));
    for (int64_t i = 0; i < 37; ++i) {
      const Tensor alone = f.canonical(Tensor::from(std::vector<float>{mixed[static_cast<size_t>(i)]}, {1}));
      const float a = alone.data<float>()[0], b = together.data<float>()[i];
      if (!std::isnan(a) || !std::isnan(b)) {
        EXPECT_TRUE(same(a, b)) << f.name << " of lane " << i << ": " << a << " alone, " << b << " in company";
      }
    }
  }
}

}  // namespace
}  // namespace elinvar::test
