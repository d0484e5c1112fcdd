// Products on tensor cores (tensor/precision.h). The emulated GPU replaces the libraries by code with known bits and
// runs the attention kernel itself (fast_attention_test.cpp). On a card, results must agree with portable products
// within the rounding of the factors, and have the same bits each time.
#include "tensor/base/check.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/on_tensor_cores.h"
#include "tests/support/temporary_folder.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/cuda.h"  // last: its macros are not for other headers
#endif

namespace elinvar::test {
namespace {

class FastProducts : public OnTensorCores {};
INSTANTIATE_TEST_SUITE_P(, FastProducts, testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FastProducts);

Tensor rounded(const Tensor& t) { return t.to(DType::bf16).to(DType::f32); }

// Returns x as a factor of this precision sees it. For tf32 the last bit may differ, because libraries may truncate.
Tensor as_seen(const Tensor& x, Precision precision) { return precision == Precision::bf16 ? rounded(x) : x; }
// bfloat16 factors are exact here, so only the order of float32 sums differs; tf32 keeps 10 bits of each factor.
double tolerance_of(Precision precision) { return precision == Precision::bf16 ? 2e-6 : 2e-3; }

TEST_P(FastProducts, MatricesOfEveryLayoutWithinATolerance) {
  const Tensor a = normal({3, 50, 40}, "a"), b = normal({3, 40, 24}, "b"), bias = normal({24}, "bias");
  for (const Precision precision : kFast) {
    const double tolerance = tolerance_of(precision);
    const Tensor x = as_seen(a, precision), y = as_seen(b, precision), expected = matmul(x, y, bias);
    const Tensor ta = there(a), tb = there(b), tbias = there(bias);
    const auto transposed = [](const Tensor& t) { return t.transpose(-2, -1).to_contiguous().transpose(-2, -1); };
    expect_close("plain", matmul(ta, tb, tbias, precision), expected, tolerance);
    expect_close("a by columns", matmul(transposed(ta), tb, tbias, precision), expected, tolerance);
    expect_close("b by columns", matmul(ta, transposed(tb), tbias, precision), expected, tolerance);
    expect_close("both", matmul(transposed(ta), transposed(tb), {}, precision), matmul(x, y), tolerance);
    expect_close("one b for all", matmul(ta, tb.select(0, 1), {}, precision), matmul(x, y.select(0, 1)), tolerance);
    expect_close("one a for all", matmul(ta.select(0, 1), tb, {}, precision), matmul(x.select(0, 1), y), tolerance);
    expect_close("a row", matmul(ta.slice(1, 0, 1), tb, {}, precision), matmul(x.slice(1, 0, 1), y), tolerance);
    expect_close("a column", matmul(ta, tb.slice(2, 3, 4), {}, precision), matmul(x, y.slice(2, 3, 4)), tolerance);
    expect_close("a row and a bias", matmul(ta.slice(1, 0, 1), tb, tbias, precision), matmul(x.slice(1, 0, 1), y, bias),
                 tolerance);
    expect_close("a column and a bias", matmul(ta, tb.slice(2, 3, 4), tbias.slice(0, 3, 4), precision),
                 matmul(x, y.slice(2, 3, 4), bias.slice(0, 3, 4)), tolerance);
    expect_close("one row for all of a", matmul(ta.slice(1, 0, 1).expand({3, 50, 40}), tb, {}, precision),
                 matmul(x.slice(1, 0, 1).expand({3, 50, 40}), y), tolerance);
    expect_close("one column for all of b", matmul(ta, tb.slice(2, 0, 1).expand({3, 40, 24}), {}, precision),
                 matmul(x, y.slice(2, 0, 1).expand({3, 40, 24})), tolerance);
    expect_close("one term", matmul(ta.slice(2, 5, 6), tb.slice(1, 5, 6), {}, precision),
                 matmul(x.slice(2, 5, 6), y.slice(1, 5, 6)), tolerance);
    expect_close("odd places", matmul(ta.slice(2, 1, 38), tb.slice(1, 1, 38), tbias, precision),
                 matmul(x.slice(2, 1, 38), y.slice(1, 1, 38), bias), tolerance);
    EXPECT_TRUE(same_bits(matmul(ta.slice(2, 0, 0), tb.slice(1, 0, 0), tbias, precision).to(Device{}),
                          matmul(a.slice(2, 0, 0), b.slice(1, 0, 0), bias)));
    const Tensor got = matmul(ta, tb, tbias, precision).to(Device{});
    EXPECT_TRUE(same_bits(matmul(ta, tb, tbias, precision).to(Device{}), got));
    EXPECT_FALSE(same_bits(got, matmul(a, b, bias))) << "nothing was rounded";
    if (emulated() && precision == Precision::bf16) {
      EXPECT_TRUE(same_bits(got, expected));
    }
  }
  // Large matrices with lines at odd places, as GPT-2's logits, go through aligned copies.
  const Tensor wide = normal({257, 4099}, "wide"), thin = normal({4099, 256}, "thin"),
               tall = normal({257, 256}, "tall");
  for (const Precision precision : kFast) {
    const double tolerance = tolerance_of(precision);
    const Tensor w = as_seen(wide, precision), t = as_seen(thin, precision), l = as_seen(tall, precision);
    const Tensor tw = there(wide), tt = there(thin), tl = there(tall);
    expect_close("a factor at odd places", matmul(tw, tt, {}, precision), matmul(w, t), tolerance);
    expect_close("its transpose", matmul(tw.transpose(0, 1), tl, {}, precision), matmul(w.transpose(0, 1), l),
                 tolerance);
    expect_close("a result at odd places", matmul(tl, tt.transpose(0, 1), {}, precision), matmul(l, t.transpose(0, 1)),
                 tolerance);
    if (precision != Precision::bf16) continue;
    const Tensor got = matmul(tl.to(DType::bf16), tt.transpose(0, 1).to(DType::bf16), {}, precision, DType::bf16);
    expect_close("a bfloat16 result at odd places", got, matmul(l, t.transpose(0, 1)), 4e-3, DType::bf16);
  }
  // A bfloat16 result is rounded once, after a rounding before the bias.
  const Tensor x = rounded(a), y = rounded(b);
  const auto narrow = [&](const char* what, const Tensor& ta, const Tensor& tb, const Tensor& tbias,
                          const Tensor& expected) {
    const Tensor got = matmul(ta, tb, tbias, Precision::bf16, DType::bf16);
    expect_close(what, got, expected, 4.1e-3, DType::bf16);  // a rounding changes a value by at most 2^-8
    if (!emulated()) return;
    EXPECT_TRUE(same_bits(got.to(Device{}), expected.to(DType::bf16))) << what;
  };
  const Tensor ta = there(a), tb = there(b), tbias = there(bias), seen = rounded(bias);
  narrow("narrow", ta, tb, {}, matmul(x, y));
  narrow("narrow with a bias", ta, tb, tbias, matmul(x, y, seen));
  narrow("narrow of one matrix", ta.select(0, 1), tb.select(0, 1), tbias, matmul(x.select(0, 1), y.select(0, 1), seen));
  narrow("a narrow row", ta.slice(1, 0, 1), tb, tbias, matmul(x.slice(1, 0, 1), y, seen));
  narrow("a narrow column", ta, tb.slice(2, 3, 4), tbias.slice(0, 3, 4),
         matmul(x, y.slice(2, 3, 4), seen.slice(0, 3, 4)));
  narrow("narrow without terms", ta.slice(2, 0, 0), tb.slice(1, 0, 0), tbias,
         matmul(x.slice(2, 0, 0), y.slice(1, 0, 0), seen));
  EXPECT_THROW(matmul(ta, tb, {}, Precision::bf16, DType::f64), UsageError);
  // A factor that was rounded in advance gives the same bits.
  EXPECT_TRUE(same_bits(matmul(there(a).to(DType::bf16), there(b), {}, Precision::bf16).to(Device{}),
                        matmul(there(a), there(b), {}, Precision::bf16).to(Device{})));
}

TEST_P(FastProducts, ConvolutionsWithinATolerance) {
  struct Case {
    Shape x, w;
    ConvOptions options;
  };
  for (const Case& c : {Case{{2, 9, 8, 8}, {16, 3, 3, 8}, {.pad_h = 1, .pad_w = 1}},
                        Case{{2, 9, 9, 3}, {8, 3, 3, 3}, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
                        Case{{3, 6, 7, 16}, {8, 1, 1, 16}, {}},
                        Case{{2, 9, 9, 8}, {8, 3, 3, 8}, {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2}},
                        Case{{1, 8, 8, 16}, {16, 3, 3, 8}, {.pad_h = 1, .pad_w = 1, .groups = 2}}}) {
    const Tensor x = normal(c.x, "x"), w = normal(c.w, "w"), bias = normal({c.w[0]}, "bias");
    const ConvGeometry g = conv_geometry(c.x, c.w, c.options);
    const Tensor dy = normal({g.n, g.oh, g.ow, g.o}, "dy");
    for (const Precision precision : kFast) {
      // Results are rounded to the type of the factors: 2^-8 for bfloat16.
      const double tolerance = precision == Precision::bf16 ? 4.1e-3 : 2e-3;
      const DType type = precision == Precision::bf16 ? DType::bf16 : DType::f32;
      const Tensor sx = as_seen(x, precision), sw = as_seen(w, precision), sdy = as_seen(dy, precision);
      const Tensor y = conv2d(there(x), there(w), there(bias), c.options, precision);
      const Tensor dx = conv2d_grad_input(there(dy), there(w), c.x, c.options, precision);
      const Tensor dw = conv2d_grad_filter(there(dy), there(x), c.w, c.options, precision);
      expect_close("forward", y, conv2d(sx, sw, bias, c.options), tolerance, type);
      expect_close("input", dx, conv2d_grad_input(sdy, sw, c.x, c.options), tolerance, type);
      expect_close("filter", dw, conv2d_grad_filter(sdy, sx, c.w, c.options), tolerance);
      EXPECT_TRUE(
          same_bits(conv2d_grad_filter(there(dy), there(x), c.w, c.options, precision).to(Device{}), dw.to(Device{})));
      if (!emulated() || precision == Precision::tf32) continue;
      EXPECT_TRUE(same_bits(conv2d(there(x), there(w), {}, c.options, precision).to(Device{}),
                            conv2d(sx, sw, {}, c.options).to(type)));
      EXPECT_TRUE(same_bits(y.to(Device{}), add(rounded(conv2d(sx, sw, {}, c.options)), bias).to(type)));
      EXPECT_TRUE(same_bits(dx.to(Device{}), conv2d_grad_input(sdy, sw, c.x, c.options).to(type)));
      EXPECT_TRUE(same_bits(dw.to(Device{}), rounded(conv2d_grad_filter(sdy, sx, c.w, c.options))));
    }
  }
}

TEST(FastProductsOnTheCpu, AreRefused) {
  const Tensor a = Tensor::zeros({2, 2}), image = Tensor::zeros({1, 2, 2, 1});
  const auto words = [](auto call) { return message_of<UsageError>(call); };
  EXPECT_EQ(words([&] { matmul(a, a, {}, Precision::bf16); }),
            "[matmul] bf16 products need a GPU; move the operands there, or ask for portable ones");
  EXPECT_NE(words([&] { conv2d(image, image, {}, {}, Precision::tf32); }).find("tf32 products need a GPU"),
            std::string::npos);
  EXPECT_EQ(fast_products(Device{}).missing, "a CPU has no tensor cores");
  EXPECT_NE(
      words([&] { matmul(a.to(DType::bf16), a.to(DType::bf16)); }).find("float32 or float64 expected, got bfloat16"),
      std::string::npos);
}

TEST_P(FastProducts, TypesThatTheyDoNotHave) {
  const Tensor a = there(Tensor::zeros({2, 2})), q = there(Tensor::zeros({1, 2, 1, 200}));
  const auto words = [](auto call) { return message_of<UsageError>(call); };
  EXPECT_NE(words([&] {
              matmul(a.to(DType::bf16), a, {}, Precision::tf32);
            }).find("factors of tf32 products are float32, got bfloat16"),
            std::string::npos);
  EXPECT_NE(words([&] { matmul(a, a, there(Tensor::zeros({2})).to(DType::bf16), Precision::bf16); }).find("the bias"),
            std::string::npos);
  EXPECT_NE(words([&] { attention(q, q, q, true, 0.0, Precision::bf16); }).find("heads of 200 elements"),
            std::string::npos);
  EXPECT_EQ(attention_precision(Precision::bf16, 200), Precision::portable);
  EXPECT_EQ(attention_precision(Precision::tf32, 64), Precision::portable);
  EXPECT_EQ(attention_precision(Precision::bf16, 128), Precision::bf16);
}

}  // namespace
}  // namespace elinvar::test
