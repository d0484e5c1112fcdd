// Compares the bits of products with scalar loops written exactly as NUMERICS.md's rules 8 and 10 state them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tensor/isa.h"
#include "tensor/numerics.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/repeated_product.h"
#include "tensor/philox.h"
#include "tensor/stream.h"

namespace elinvar {
namespace {

// Rule 8, term by term.
class Chain {
 public:
  void add(float a, float b) {
    acc_ = std::fma(a, b, acc_);
    if (++k_ % kChunk == 0) end_chunk();
    if (k_ % (kChunk * kGroup) == 0) end_group();
  }
  float result() {
    end_chunk();
    end_group();
    return c_;
  }

 private:
  void end_chunk() { group_ = group_ + acc_, acc_ = 0.0f; }
  void end_group() { c_ = c_ + group_, group_ = 0.0f; }
  float c_ = 0.0f, group_ = 0.0f, acc_ = 0.0f;
  int64_t k_ = 0;
};

Tensor random(const Shape& shape, uint64_t key) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]) - 0.5f;
  return t;
}

void expect_bits(const Tensor& found, const Tensor& expected, const char* what) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (int64_t i = 0; i < found.numel(); ++i)
    ASSERT_EQ(std::memcmp(found.data<float>() + i, expected.data<float>() + i, 4), 0)
        << what << ", element " << i << ": " << found.data<float>()[i] << " instead of " << expected.data<float>()[i];
}

template <class F>
void on_every_isa(F&& f) {
  const Isa before = current_isa();
  for (Isa isa : available_isas()) {
    set_isa(isa);
    SCOPED_TRACE(name_of(isa));
    f();
  }
  set_isa(before);
}

struct MatmulCase {
  int64_t m, n, k;
};
class MatmulOrder : public testing::TestWithParam<MatmulCase> {};

TEST_P(MatmulOrder, EqualsTheScalarChain) {
  const auto [m, n, k] = GetParam();
  const Tensor bias = random({n}, 3);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const Tensor a = transpose_a ? random({k, m}, 1).transpose(0, 1) : random({m, k}, 1);
      const Tensor b = transpose_b ? random({n, k}, 2).transpose(0, 1) : random({k, n}, 2);
      Tensor expected = Tensor::empty({m, n});
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          Chain chain;
          for (int64_t p = 0; p < k; ++p)
            chain.add(a.data<float>()[i * a.strides()[0] + p * a.strides()[1]],
                      b.data<float>()[p * b.strides()[0] + j * b.strides()[1]]);
          expected.data<float>()[i * n + j] = chain.result() + bias.data<float>()[j];
        }
      }
      on_every_isa([&] {
        expect_bits(matmul(a, b, bias), expected, "product");
        if (!transpose_a) expect_bits(RepeatedProduct(b, m)(a, bias), expected, "repeated product");
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MatmulOrder,
                         testing::Values(MatmulCase{1, 10, 64}, MatmulCase{5, 7, 3}, MatmulCase{33, 100, 600},
                                         MatmulCase{17, 50, 9000}, MatmulCase{9, 3, 17000}, MatmulCase{3, 130, 1100}));

struct ConvCase {
  Shape x, w;
  ConvOptions options;
};
class ConvOrder : public testing::TestWithParam<ConvCase> {};

TEST_P(ConvOrder, EqualsTheScalarChain) {
  const ConvCase& c = GetParam();
  const Tensor x = random(c.x, 1), w = random(c.w, 2);
  const ConvGeometry g = conv_geometry(c.x, c.w, c.options);
  const Tensor dy = random({g.n, g.oh, g.ow, g.o}, 3);
  const int64_t channels = g.c / g.groups, filters = g.o / g.groups;
  const auto image = [&](int64_t n, int64_t y, int64_t xx, int64_t ch) {
    return y < 0 || y >= g.h || xx < 0 || xx >= g.w ? 0.0f : x.data<float>()[((n * g.h + y) * g.w + xx) * g.c + ch];
  };
  Tensor y = Tensor::empty(dy.shape()), dx = Tensor::empty(c.x), dw = Tensor::empty(c.w);
  float* out = y.data<float>();
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t i = 0; i < g.oh; ++i)
      for (int64_t j = 0; j < g.ow; ++j)
        for (int64_t o = 0; o < g.o; ++o) {
          Chain chain;
          for (int64_t kh = 0; kh < g.kh; ++kh)
            for (int64_t kw = 0; kw < g.kw; ++kw)
              for (int64_t q = 0; q < channels; ++q)
                chain.add(image(n, i * g.stride_h - g.pad_h + kh * g.dilation_h,
                                j * g.stride_w - g.pad_w + kw * g.dilation_w, o / filters * channels + q),
                          w.data<float>()[((o * g.kh + kh) * g.kw + kw) * channels + q]);
          *out++ = chain.result();
        }
  out = dx.data<float>();
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t i = 0; i < g.h; ++i)
      for (int64_t j = 0; j < g.w; ++j)
        for (int64_t ch = 0; ch < g.c; ++ch) {
          Chain chain;
          for (int64_t kh = 0; kh < g.kh; ++kh)
            for (int64_t kw = 0; kw < g.kw; ++kw) {
              const int64_t a = i + g.pad_h - kh * g.dilation_h, b = j + g.pad_w - kw * g.dilation_w;
              const bool inside = a >= 0 && b >= 0 && a % g.stride_h == 0 && b % g.stride_w == 0 &&
                                  a / g.stride_h < g.oh && b / g.stride_w < g.ow;
              for (int64_t q = 0; q < filters; ++q) {
                const int64_t o = ch / channels * filters + q;
                chain.add(
                    inside ? dy.data<float>()[((n * g.oh + a / g.stride_h) * g.ow + b / g.stride_w) * g.o + o] : 0.0f,
                    w.data<float>()[((o * g.kh + kh) * g.kw + kw) * channels + ch % channels]);
              }
            }
          *out++ = chain.result();
        }
  out = dw.data<float>();
  for (int64_t o = 0; o < g.o; ++o)
    for (int64_t kh = 0; kh < g.kh; ++kh)
      for (int64_t kw = 0; kw < g.kw; ++kw)
        for (int64_t q = 0; q < channels; ++q) {
          Chain chain;
          for (int64_t n = 0; n < g.n; ++n)
            for (int64_t i = 0; i < g.oh; ++i)
              for (int64_t j = 0; j < g.ow; ++j)
                chain.add(dy.data<float>()[((n * g.oh + i) * g.ow + j) * g.o + o],
                          image(n, i * g.stride_h - g.pad_h + kh * g.dilation_h,
                                j * g.stride_w - g.pad_w + kw * g.dilation_w, o / filters * channels + q));
          *out++ = chain.result();
        }
  const int before = cpu_stream().threads();
  on_every_isa([&] {
    expect_bits(conv2d(x, w, {}, c.options), y, "forward");
    expect_bits(conv2d_grad_input(dy, w, c.x, c.options), dx, "input gradient");
    for (const int threads : {1, 2}) {
      set_threads(threads);
      expect_bits(conv2d_grad_filter(dy, x, c.w, c.options), dw, "filter gradient");
    }
    set_threads(before);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvOrder,
    testing::Values(ConvCase{{2, 9, 7, 3}, {5, 3, 3, 3}, {.pad_h = 1, .pad_w = 1}},
                    ConvCase{{2, 17, 16, 3}, {20, 7, 7, 3}, {.stride_h = 2, .stride_w = 2, .pad_h = 3, .pad_w = 3}},
                    ConvCase{{3, 7, 7, 64}, {70, 1, 1, 64}, {.stride_h = 2, .stride_w = 2}},
                    ConvCase{{35, 16, 16, 33}, {30, 1, 1, 33}, {}},
                    ConvCase{{40, 31, 30, 5}, {7, 1, 1, 5}, {.stride_h = 2, .stride_w = 2}},
                    ConvCase{{1, 12, 11, 8}, {8, 3, 3, 8}, {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2}},
                    ConvCase{{4, 8, 8, 20}, {20, 3, 3, 1}, {.pad_h = 1, .pad_w = 1, .groups = 20}},
                    ConvCase{{2, 10, 10, 100}, {17, 3, 3, 100}, {.stride_w = 2, .pad_w = 1}},
                    ConvCase{{40, 16, 16, 4}, {9, 3, 3, 4}, {.pad_h = 1, .pad_w = 1}},
                    // Rows copied with their padding: channels that fill no tile, and more of them in short rows;
                    // chunks that begin within a row, and end in another image.
                    ConvCase{{5, 13, 17, 20}, {33, 3, 3, 20}, {.pad_h = 1, .pad_w = 1}},
                    ConvCase{{11, 8, 9, 64}, {50, 3, 2, 64}, {.pad_h = 2, .dilation_h = 2}},
                    ConvCase{{70, 9, 14, 16}, {4, 1, 3, 16}, {.pad_w = 4}},
                    // Few channels, by pixels: taps cut by chunks, strides that meet no tap, many groups.
                    ConvCase{{2, 21, 37, 5}, {90, 3, 3, 5}, {.stride_w = 2, .pad_h = 1, .pad_w = 2, .dilation_h = 2}},
                    ConvCase{{1, 19, 50, 3}, {11, 2, 2, 3}, {.stride_h = 3, .stride_w = 3, .pad_w = 1}},
                    ConvCase{{1, 12, 35, 1}, {180, 7, 7, 1}, {.pad_h = 3, .pad_w = 3, .dilation_w = 2}},
                    ConvCase{{1, 30, 17, 8}, {600, 3, 3, 8}, {.pad_h = 5, .pad_w = 5}},
                    ConvCase{{1, 4, 4, 1000}, {3, 3, 3, 1000}, {.pad_h = 1, .pad_w = 1}},
                    ConvCase{{3, 6, 6, 300}, {8, 3, 3, 300}, {.stride_h = 3, .stride_w = 3, .pad_h = 1, .pad_w = 1}}));

// A view may have any strides where its extent is 1.
TEST(Matmul, ReadsBatchesOfViewsWithExtentsOfOne) {
  for (const Shape& shape : {Shape{3, 5, 1, 4}, Shape{1, 5, 3, 4}, Shape{1, 5, 1, 4}, Shape{3, 5, 2, 4}}) {
    const Tensor heads = random(shape, 1), others = random(shape, 2);  // (B, T, H, D)
    const Tensor a = heads.permute({0, 2, 1, 3}), b = others.permute({0, 2, 3, 1});
    const Tensor products = matmul(a, b);
    for (int64_t batch = 0; batch < a.dim(0); ++batch)
      for (int64_t h = 0; h < a.dim(1); ++h) {
        const Tensor alone = matmul(a.select(0, batch).select(0, h).clone(), b.select(0, batch).select(0, h).clone());
        const Tensor found = products.select(0, batch).select(0, h).clone();
        EXPECT_EQ(std::memcmp(found.data<float>(), alone.data<float>(), sizeof(float) * 25), 0)
            << to_string(shape) << ", " << batch << ", " << h;
      }
  }
}

}  // namespace
}  // namespace elinvar
