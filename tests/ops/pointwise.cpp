#include "autograd/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "autograd/reduce.h"
#include "tensor/isa.h"
#include "tensor/ops/compare.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/pointwise.h"
#include "tests/ops/op_row.h"

namespace elinvar::test {
namespace {

using Kind = Input::Kind;

// y[i] = f of the elements of all inputs, each broadcast to `shape`.
template <class F, class... T>
Tensor each(F f, const Shape& shape, const T&... inputs) {
  Tensor y = Tensor::empty(shape, DType::f64);
  const auto element = [](const Tensor& x, int64_t i) {
    return x.dtype() == DType::u8 ? x.data<uint8_t>()[i] : x.data<double>()[i];
  };
  [&](const auto&... full) {
    for (int64_t i = 0; i < y.numel(); ++i) y.data<double>()[i] = f(element(full, i)...);
  }(inputs.expand(shape).clone()...);
  return y;
}

// An exact value of a function: at a kink, at an infinity, for NaN, or where another formula would overflow.
struct Point {
  float x, value, gradient;
};

struct UnaryCase {
  const char* name;
  Var (*op)(const Var&);
  double (*oracle)(double);
  Kind kind = Kind::normal;
  double ulps = 0;  // the largest error over all float32, in units in the last place; 0: not compared
  std::vector<Point> points = {};
};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

const UnaryCase kUnary[] = {
    {"neg", neg, [](double x) { return -x; }},
    {"abs", abs, [](double x) { return std::fabs(x); }},
    {"exp", exp, [](double x) { return std::exp(x); }},
    {"expm1", expm1, [](double x) { return std::expm1(x); }},
    {"log", log, [](double x) { return std::log(x); }, Kind::positive},
    {"log1p", log1p, [](double x) { return std::log1p(x); }, Kind::positive},
    {"sqrt", sqrt, [](double x) { return std::sqrt(x); }, Kind::positive},
    {"rsqrt", rsqrt, [](double x) { return 1.0 / std::sqrt(x); }, Kind::positive},
    {"square", square, [](double x) { return x * x; }},
    {"reciprocal", reciprocal, [](double x) { return 1.0 / x; }, Kind::positive},
    {"tanh", tanh, [](double x) { return std::tanh(x); }},
    {"erf", erf, [](double x) { return std::erf(x); }},
    {"sin", sin, [](double x) { return std::sin(x); }},
    {"cos", cos, [](double x) { return std::cos(x); }},
    {"sigmoid", sigmoid, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }},
    {"relu",
     relu,
     [](double x) { return std::max(x, 0.0); },
     Kind::normal,
     0.5,
     {{-kInf, 0, 0}, {-1, 0, 0}, {0, 0, 0}, {kInf, kInf, 1}, {kNan, kNan, 1}}},
    {"silu", silu, [](double x) { return x / (1.0 + std::exp(-x)); }},
    {"gelu", gelu, [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2)); }},
    {"gelu_tanh", gelu_tanh,
     [](double x) {
       return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
     }},
    {"softplus",
     softplus,
     [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); },
     Kind::normal,
     2.5,
     {{-kInf, 0, 0},
      {-200, 0, 0},
      {0, 0.6931472f, 0.5f},
      {100, 100, 1},
      {1e38f, 1e38f, 1},
      {kInf, kInf, 1},
      {kNan, kNan, kNan}}},
    {"mish",
     mish,
     [](double x) { return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))); },
     Kind::normal,
     4,
     {{-kInf, kNan, kNan},
      {-1e30f, 0, 0},
      {0, 0, 0.6f},
      {30, 30, 1},
      {1e38f, 1e38f, 1},
      {kInf, kInf, 1},
      {kNan, kNan, kNan}}},
    {"hardswish",
     hardswish,
     [](double x) { return x * (std::clamp(x + 3, 0.0, 6.0) / 6); },
     Kind::normal,
     2,
     {{-kInf, kNan, 0},
      {-4, 0, 0},
      {-3, 0, 0},
      {0, 0, 0.5f},
      {3, 3, 1},
      {1e38f, 1e38f, 1},
      {kInf, kInf, 1},
      {kNan, kNan, 1}}},
    {"leaky_relu",
     [](const Var& x) { return leaky_relu(x, 0.25); },
     [](double x) { return x > 0 ? x : 0.25 * x; },
     Kind::normal,
     0.5,
     {{-kInf, -kInf, 0.25f}, {-4, -1, 0.25f}, {0, 0, 0.25f}, {8, 8, 1}, {kInf, kInf, 1}, {kNan, kNan, 0.25f}}},
    {"elu",
     [](const Var& x) { return elu(x, 2); },
     [](double x) { return x > 0 ? x : 2 * std::expm1(x); },
     Kind::normal,
     1.5,
     {{-kInf, -2, 0}, {-1e-10f, -2e-10f, 2}, {0, 0, 2}, {3, 3, 1}, {kInf, kInf, 1}, {kNan, kNan, 1}}},
    {"relu6",
     relu6,
     [](double x) { return std::clamp(x, 0.0, 6.0); },
     Kind::normal,
     0.5,
     {{-kInf, 0, 0}, {-1, 0, 0}, {0, 0, 0}, {3, 3, 1}, {6, 6, 0}, {7, 6, 0}, {kInf, 6, 0}, {kNan, kNan, 1}}},
};
static_assert(std::size(kUnary) == pointwise::UnaryFunctions::kSize, "one row an op");

struct BinaryCase {
  const char* name;
  Var (*op)(const Var&, const Var&);
  double (*oracle)(double, double);
  Kind second = Kind::normal;
};

const BinaryCase kBinary[] = {
    {"add", add, [](double a, double b) { return a + b; }},
    {"sub", sub, [](double a, double b) { return a - b; }},
    {"mul", mul, [](double a, double b) { return a * b; }},
    {"div", div, [](double a, double b) { return a / b; }, Kind::positive},
    {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
    {"minimum", minimum, [](double a, double b) { return std::min(a, b); }},
    {"add_relu", add_relu, [](double a, double b) { return std::max(a + b, 0.0); }},
};
static_assert(std::size(kBinary) == pointwise::BinaryFunctions::kSize, "one row an op");

// Comparisons have no gradient; half of the elements of these inputs are equal.
struct CompareCase {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  bool (*oracle)(double, double);
};

const CompareCase kCompare[] = {
    {"equal", equal, [](double a, double b) { return a == b; }},
    {"not_equal", not_equal, [](double a, double b) { return a != b; }},
    {"less", less, [](double a, double b) { return a < b; }},
    {"less_equal", less_equal, [](double a, double b) { return a <= b; }},
    {"greater", greater, [](double a, double b) { return a > b; }},
    {"greater_equal", greater_equal, [](double a, double b) { return a >= b; }},
};

Tensor ones(const Shape& shape, DType dtype = DType::f32) { return Tensor::full(shape, 1.0, dtype); }

std::vector<OpRow> unary_rows() {
  std::vector<OpRow> rows;
  for (const UnaryCase& c : kUnary)
    rows.push_back({.name = c.name,
                    .inputs = {{{5, 37}, c.kind}},
                    .op = [op = c.op](const Vars& v) { return op(v[0]); },
                    .oracle = [f = c.oracle](const Tensors& t) { return each(f, t[0].shape(), t[0]); },
                    .large = {{{50021}, c.kind}},
                    .errors = {{[op = c.op] { op(Var(ones({3}, DType::i32))); },
                                std::string("[") + c.name + "] float32 or float64 expected, got int32"}}});
  return rows;
}

std::vector<OpRow> binary_rows() {
  std::vector<OpRow> rows;
  for (const BinaryCase& c : kBinary) {
    const auto op = [f = c.op](const Vars& v) { return f(v[0], v[1]); };
    const auto oracle = [f = c.oracle](const Tensors& t) {
      return each(f, broadcast(t[0].shape(), t[1].shape(), "oracle"), t[0], t[1]);
    };
    const std::string tag = std::string("[") + c.name + "] ";
    rows.push_back(
        {.name = c.name,
         .inputs = {{{7, 19}}, {{7, 19}, c.second}},
         .op = op,
         .oracle = oracle,
         .large = {{{211, 307}}, {{211, 307}, c.second}},
         .errors = {{[f = c.op] {
                       f(ones({2, 3}), ones({2, 4}));
                     },
                     tag + "shapes (2, 3) and (2, 4)"},
                    {[f = c.op] { f(ones({3}), ones({3}, DType::f64)); }, tag + "operands must have one dtype"},
                    {[f = c.op] { f(ones({3}, DType::u8), ones({3}, DType::u8)); },
                     tag + "float32, float64, int32 or int64 expected, got uint8"}}});
    rows.push_back({.name = std::string(c.name) + " broadcast both",
                    .inputs = {{{3, 1, 5}}, {{4, 1}, c.second}},
                    .op = op,
                    .oracle = oracle,
                    .large = {{{300, 1, 300}}, {{2, 1}, c.second}}});
    rows.push_back({.name = std::string(c.name) + " row",
                    .inputs = {{{6, 4, 21}}, {{21}, c.second}},
                    .op = op,
                    .oracle = oracle,
                    .large = {{{130, 515}}, {{515}, c.second}}});
    rows.push_back(
        {.name = std::string(c.name) + " element", .inputs = {{{1}}, {{3, 9}, c.second}}, .op = op, .oracle = oracle});
  }
  return rows;
}

std::vector<OpRow> compare_rows() {
  std::vector<OpRow> rows;
  for (const CompareCase& c : kCompare)
    rows.push_back(
        {.name = c.name,
         .inputs = {{{6, 11}}, {{11}}, {{6, 11}, Kind::mask}},
         .op = [f = c.op](
                   const Vars& v) { return Var(f(where(v[2].value(), v[0].value(), v[1].value()), v[1].value())); },
         .oracle =
             [f = c.oracle](const Tensors& t) {
               return each([&](double a, double b, double m) { return f(m != 0 ? a : b, b) ? 1.0 : 0.0; }, t[0].shape(),
                           t[0], t[1], t[2]);
             },
         .large = {{{190, 301}}, {{301}}, {{190, 301}, Kind::mask}},
         .errors = {{[f = c.op] { f(ones({2}), ones({3})); }, "do not broadcast"},
                    {[f = c.op] { f(ones({2}), ones({2}, DType::i32)); }, "operands must have one dtype"}},
         .differentiable = false});
  return rows;
}

const Rng kRng{.seed = 7, .step = 1, .vrank = 2, .op = 3};

double dropped(double x, int64_t i, double p) {
  const Random4 words = kRng.block(static_cast<uint32_t>(i / 4));
  return uniform01(words.v[i % 4]) >= p ? x / (1.0 - p) : 0.0;
}

std::vector<OpRow> other_rows() {
  const auto dropout_oracle = [](const Tensors& t) {
    int64_t i = 0;
    return each([&](double x) { return dropped(x, i++, 0.3); }, t[0].shape(), t[0]);
  };
  return {
      {.name = "add scalar",
       .inputs = {{{4, 9}}},
       .op = [](const Vars& v) { return v[0] + 2.5; },
       .oracle = [](const Tensors& t) { return each([](double x) { return x + 2.5; }, t[0].shape(), t[0]); }},
      {.name = "mul scalar",
       .inputs = {{{4, 9}}},
       .op = [](const Vars& v) { return v[0] * -1.5; },
       .oracle = [](const Tensors& t) { return each([](double x) { return x * -1.5; }, t[0].shape(), t[0]); }},
      {.name = "where",
       .inputs = {{{5, 1, 7}, Kind::mask}, {{4, 7}}, {{7}}},
       .op = [](const Vars& v) { return where(v[0].value(), v[1], v[2]); },
       .oracle =
           [](const Tensors& t) {
             return each([](double m, double a, double b) { return m != 0 ? a : b; }, {5, 4, 7}, t[0], t[1], t[2]);
           },
       .errors = {{[] { where(ones({2}), Var(ones({2})), Var(ones({2}))); },
                   "[where] a uint8 condition expected, got float32"},
                  {[] { where(ones({2}, DType::u8), Var(ones({3})), Var(ones({3}))); }, "[where] shapes (3,) and (2,)"},
                  {[] { where(ones({2}, DType::u8), Var(ones({2})), Var(ones({2}, DType::f64))); }, "one dtype"}}},
      {.name = "cast",
       .inputs = {{{3, 8}}},
       .op = [](const Vars& v) { return square(cast(cast(v[0], DType::f64), v[0].dtype())); },
       .oracle = [](const Tensors& t) { return each([](double x) { return x * x; }, t[0].shape(), t[0]); },
       .errors = {{[] { cast(Var(ones({2}, DType::i32)), DType::f32); },
                   "[cast] floating types expected, got int32 to float32"}}},
      {.name = "dropout",
       .inputs = {{{9, 31}}},
       .op = [](const Vars& v) { return dropout(v[0], 0.3, kRng); },
       .oracle = dropout_oracle,
       .large = {{{23, 5003}}},
       .errors = {{[] { dropout(Var(ones({2})), 1.0, kRng); }, "[dropout] a probability in [0, 1) expected, got 1"},
                  {[] { dropout(Var(ones({2}, DType::i64)), 0.5, kRng); }, "[dropout] float32 or float64 expected"}}},
  };
}

// Returns the unit in the last place; for results that are nearly too small for float32, that of 2^-119.
float ulp_of(float x) {
  const float magnitude = std::max(std::fabs(x), 0x1p-119f);
  return std::nextafter(magnitude, kInf) - magnitude;
}

// Returns every 65537th float32.
Tensor floats() {
  Tensor x = Tensor::empty({(int64_t{1} << 32) / 65537 + 1});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = std::bit_cast<float>(static_cast<uint32_t>(i * 65537));
  return x;
}

TEST(PointwiseFunctions, AreAccurateAtEveryMagnitude) {
  const Tensor x = floats();
  for (const UnaryCase& c : kUnary) {
    if (c.ulps == 0) continue;
    const Tensor y = c.op(Var(x)).value();
    double largest = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double in = x.data<float>()[i], out = y.data<float>()[i], exact = c.oracle(in);
      if (std::isinf(in) || std::isnan(in)) continue;
      if (std::fabs(exact) > std::numeric_limits<float>::max()) EXPECT_EQ(out, static_cast<float>(exact)) << c.name;
      else largest = std::max(largest, std::fabs(out - exact) / ulp_of(static_cast<float>(exact)));
      ASSERT_FALSE(std::isnan(out)) << c.name << "(" << in << ")";
    }
    RecordProperty(c.name, std::to_string(largest));
    EXPECT_LE(largest, c.ulps) << c.name;
  }
}

TEST(PointwiseFunctions, AreExactWhereTheyHaveToBe) {
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    for (const UnaryCase& c : kUnary)
      for (const Point& p : c.points) {
        const Var x(Tensor::full({3}, p.x), true);
        const Var y = c.op(x);
        backward(sum(y));
        EXPECT_TRUE(same(y.value().data<float>()[1], p.value))
            << c.name << "(" << p.x << ") = " << y.value().data<float>()[1];
        EXPECT_TRUE(same(x.grad().data<float>()[1], p.gradient))
            << "the gradient of " << c.name << " at " << p.x << " is " << x.grad().data<float>()[1];
      }
  }
  set_isa(available_isas().back());
}

const OpRows unary(unary_rows());
const OpRows binary(binary_rows());
const OpRows comparisons(compare_rows());
const OpRows others(other_rows());

}  // namespace
}  // namespace elinvar::test
