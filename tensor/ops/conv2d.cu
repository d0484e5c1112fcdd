#include "tensor/cuda/kernel.h"

#include "tensor/cuda/exact_warpgroups.h"
#include "tensor/cuda/patches.h"
#include "tensor/cuda/product.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/conv2d_depthwise.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Three products, each with a batch of one product per group.

bool starts_at_16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T>
struct Forward {  // i = (n, oh, ow), k = (kh, kw, c), j = o
  using Result = Forward;
  int m, n, k, batch;
  PatchesOfPositions<T> a;
  MatrixOperand<true, T> b;
  const float* added;
  float* y;
  int64_t y_row;

  explicit Forward(const ConvArgs& args)
      : m(static_cast<int>(args.g.n * args.g.oh * args.g.ow)),
        n(static_cast<int>(args.g.o / args.g.groups)),
        k(static_cast<int>(args.g.kh * args.g.kw * (args.g.c / args.g.groups))),
        batch(static_cast<int>(args.g.groups)),
        a{Patches<T>(args.g, args.x.as<T>())},
        b{filters(args.w.as<T>(), args.g.o)},
        added(static_cast<const float*>(args.bias)),
        y(args.y.as<float>()),
        y_row(args.g.o) {}

  bool in_fours() const { return a.patches.in_fours() && b.in_fours(n, k); }
  bool fours_of_c() const { return n % 4 == 0 && starts_at_16(y); }
  __device__ SkipNothing skip(int) const { return {}; }
  __device__ float* row(int group, int i) const { return y + i * y_row + group * n; }
  __device__ const float* bias(int group) const { return added ? added + group * n : nullptr; }

 private:
  MatrixOperand<true, T> filters(const T* w, int64_t all) const {
    if constexpr (std::is_same_v<T, Chunk>) return {w, 1, all, n};
    else return {w, k, 1, int64_t{n} * k};
  }
};

template <class T>
struct GradInput {  // i = (n, h, w) of a phase, k = (kh, kw, o), j = c
  using Result = GradInput;
  int m, n, k, batch;
  Outputs<T> a;
  FilterOfOutputs<T> b;
  float* dx;
  int64_t dx_row;

  explicit GradInput(const ConvGradInputArgs& args)
      : m(0),
        n(static_cast<int>(args.g.c / args.g.groups)),
        k(static_cast<int>(args.g.kh * args.g.kw * (args.g.o / args.g.groups))),
        batch(static_cast<int>(args.g.groups)),
        a(args.g, args.dy.as<T>()),
        b{args.w.as<T>(), n, a.filters, a.kernel_height * a.kernel_width, a.phases()},
        dx(args.dx.as<float>()),
        dx_row(args.g.c) {
    m = static_cast<int>(args.g.n) * a.lines_high * a.lines_wide;
    batch *= a.phases();
  }

  bool in_fours() const { return a.in_fours() && b.in_fours(); }
  bool fours_of_c() const { return n % 4 == 0 && starts_at_16(dx); }
  __device__ typename Outputs<T>::Skip skip(int phase) const { return a.skip(phase); }
  __device__ float* row(int phase, int i) const {  // counted over all groups
    const int64_t at = a.position(phase, i);
    return at < 0 ? nullptr : dx + at * dx_row + phase / a.phases() * n;
  }
  __device__ const float* bias(int) const { return nullptr; }
};

template <class T>
struct GradFilter {  // i = o, k = (n, oh, ow), j = (kh, kw, c)
  using Result = GradFilter;
  int m, n, k, batch;
  MatrixOperand<false, T> a;
  PatchesOfTaps<T> b;
  float* dw;

  explicit GradFilter(const ConvGradFilterArgs& args)
      : m(static_cast<int>(args.g.o / args.g.groups)),
        n(static_cast<int>(args.g.kh * args.g.kw * (args.g.c / args.g.groups))),
        k(static_cast<int>(args.g.n * args.g.oh * args.g.ow)),
        batch(static_cast<int>(args.g.groups)),
        a{args.dy.as<T>(), 1, args.g.o, m},
        b{Patches<T>(args.g, args.x.as<T>())},
        dw(args.dw.as<float>()) {}

  bool in_fours() const { return a.in_fours(m, k) && b.patches.in_fours(); }
  bool fours_of_c() const { return n % 4 == 0 && starts_at_16(dw); }
  __device__ SkipNothing skip(int) const { return {}; }
  __device__ float* row(int group, int i) const { return dw + (int64_t{group} * m + i) * n; }
  __device__ const float* bias(int) const { return nullptr; }
};

// The same of pairs, or of chunks, whose exponents belong to images, filters and channels.

template <class T>
struct ExactForward : Forward<T> {
  using Result = ExactForward;
  using Forward<T>::a, Forward<T>::n;
  Exponents exponents;
  int positions;  // of an image

  explicit ExactForward(const ConvArgs& args)
      : Forward<T>(args), exponents(args.exponents), positions(a.patches.out_height * a.patches.out_width) {}

  __device__ int32_t row_exponent(int, int i) const { return exponents.rows[i / positions]; }
  __device__ int32_t column_exponent(int group, int j) const { return exponents.columns[group * n + j]; }
};

template <class T>
struct ExactGradInput : GradInput<T> {
  using Result = ExactGradInput;
  using GradInput<T>::a, GradInput<T>::n;
  Exponents exponents;
  int positions;  // lines of an image

  explicit ExactGradInput(const ConvGradInputArgs& args)
      : GradInput<T>(args), exponents(args.exponents), positions(a.lines_high * a.lines_wide) {}

  __device__ int32_t row_exponent(int, int i) const { return exponents.rows[i / positions]; }
  __device__ int32_t column_exponent(int phase, int j) const { return exponents.columns[phase / a.phases() * n + j]; }
};

template <class T>
struct ExactGradFilter : GradFilter<T> {
  using Result = ExactGradFilter;
  using GradFilter<T>::b, GradFilter<T>::m;
  Exponents exponents;

  explicit ExactGradFilter(const ConvGradFilterArgs& args) : GradFilter<T>(args), exponents(args.exponents) {}

  __device__ int32_t row_exponent(int group, int i) const { return exponents.rows[group * m + i]; }
  __device__ int32_t column_exponent(int group, int j) const {
    const int channels = b.patches.channels;
    return exponents.columns[group * channels + j % channels];
  }
};

// Each multiplies chunks of the pairs, or returns false: a chunk has whole pairs, of channels of one group.

bool multiply_in_chunks(Gpu& stream, const char* name, const ConvArgs& pairs) {
  using Factors = ExactForward<Chunk>;
  const ConvGeometry& g = pairs.g;
  const int64_t channels = g.c / g.groups;
  const ExactForward<uint32_t> f(pairs);
  if (channels % kPairsOfChunk != 0) return false;
  const auto plan = plan_of_chunks<Factors>(f, g.n * g.h * g.w * g.c + g.o * g.kh * g.kw * channels);
  if (!plan) return false;
  const Chunks x(stream, name, pairs.x.data, true, g.n * g.h * g.w, g.c),
      w(stream, name, pairs.w.data, true, g.o, g.kh * g.kw * channels);
  ConvArgs chunks = pairs;
  chunks.g.c /= kPairsOfChunk;
  chunks.x.data = x.data(), chunks.w.data = w.data();
  multiply_chunks(stream, name, Factors(chunks), f, *plan, x, w);
  return true;
}

bool multiply_in_chunks(Gpu& stream, const char* name, const ConvGradInputArgs& pairs) {
  using Factors = ExactGradInput<Chunk>;
  const ConvGeometry& g = pairs.g;
  const ExactGradInput<uint32_t> f(pairs);
  if (g.o / g.groups % kPairsOfChunk != 0) return false;
  const int64_t channels = g.kh * g.kw * (g.c / g.groups);  // of each filter
  const auto plan = plan_of_chunks<Factors>(f, (g.n * g.oh * g.ow + channels) * g.o);
  if (!plan) return false;
  const Chunks dy(stream, name, pairs.dy.data, true, g.n * g.oh * g.ow, g.o),
      w(stream, name, pairs.w.data, false, channels, g.o);
  ConvGradInputArgs chunks = pairs;
  chunks.g.o /= kPairsOfChunk;
  chunks.dy.data = dy.data(), chunks.w.data = w.data();
  multiply_chunks(stream, name, Factors(chunks), f, *plan, dy, w);
  return true;
}

bool multiply_in_chunks(Gpu& stream, const char* name, const ConvGradFilterArgs& pairs) {
  using Factors = ExactGradFilter<Chunk>;
  const ConvGeometry& g = pairs.g;
  const ExactGradFilter<uint32_t> f(pairs);
  if (g.n % kPairsOfChunk != 0) return false;
  const auto plan = plan_of_chunks<Factors>(f, g.n * (g.oh * g.ow * g.o + g.h * g.w * g.c));
  if (!plan) return false;
  const Chunks dy(stream, name, pairs.dy.data, false, g.oh * g.ow * g.o, g.n),
      x(stream, name, pairs.x.data, false, g.h * g.w * g.c, g.n);
  ConvGradFilterArgs chunks = pairs;
  chunks.g.n /= kPairsOfChunk;
  chunks.dy.data = dy.data(), chunks.x.data = x.data();
  multiply_chunks(stream, name, Factors(chunks), f, *plan, dy, x);
  return true;
}

void check_geometry(const ConvGeometry& g) {
  check_extents("conv2d", {g.n * g.h * g.w, g.n * g.oh * g.ow, g.kh * g.kw * g.c, g.kh * g.kw * g.o,
                           (g.h + 2 * g.pad_h) * (g.w + 2 * g.pad_w)});
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void conv2d(Gpu& stream, const ConvArgs& a) {
  HWY_NAMESPACE::check_geometry(a.g);
  if (is_depthwise(a.g)) depthwise_forward(stream, a);
  else HWY_NAMESPACE::multiply(stream, "conv2d", HWY_NAMESPACE::Forward<float>(a));
}

template <>
void conv2d_grad_input(Gpu& stream, const ConvGradInputArgs& a) {
  HWY_NAMESPACE::check_geometry(a.g);
  if (is_depthwise(a.g)) depthwise_grad_input(stream, a);
  else HWY_NAMESPACE::multiply(stream, "conv2d_grad_input", HWY_NAMESPACE::GradInput<float>(a));
}

template <>
void conv2d_grad_filter(Gpu& stream, const ConvGradFilterArgs& a) {
  HWY_NAMESPACE::check_geometry(a.g);
  if (is_depthwise(a.g)) depthwise_grad_filter(stream, a);
  else HWY_NAMESPACE::multiply(stream, "conv2d_grad_filter", HWY_NAMESPACE::GradFilter<float>(a));
}

template <>
void exact_conv2d(Gpu& stream, const ConvArgs& a) {
  HWY_NAMESPACE::check_geometry(a.g);
  constexpr const char* kName = "exact_conv2d";
  if (!HWY_NAMESPACE::multiply_in_chunks(stream, kName, a))
    HWY_NAMESPACE::multiply_exactly(stream, kName, HWY_NAMESPACE::ExactForward<uint32_t>(a));
}

template <>
void exact_conv2d_grad_input(Gpu& stream, const ConvGradInputArgs& a) {
  HWY_NAMESPACE::check_geometry(a.g);
  constexpr const char* kName = "exact_conv2d_grad_input";
  if (!HWY_NAMESPACE::multiply_in_chunks(stream, kName, a))
    HWY_NAMESPACE::multiply_exactly(stream, kName, HWY_NAMESPACE::ExactGradInput<uint32_t>(a));
}

template <>
void exact_conv2d_grad_filter(Gpu& stream, const ConvGradFilterArgs& a) {
  HWY_NAMESPACE::check_geometry(a.g);
  constexpr const char* kName = "exact_conv2d_grad_filter";
  if (!HWY_NAMESPACE::multiply_in_chunks(stream, kName, a))
    HWY_NAMESPACE::multiply_exactly(stream, kName, HWY_NAMESPACE::ExactGradFilter<uint32_t>(a));
}

}  // namespace elinvar
