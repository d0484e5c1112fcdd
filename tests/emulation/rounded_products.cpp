#include "tests/emulation/rounded_products.h"

#include <bit>
#include <cstring>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/dtype.h"
#include "tensor/stream.h"

namespace elinvar::emulation {
namespace {

// Rounds a float32 to the upper 10 bits of its fraction, to nearest even.
float rounded_to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

// Returns `count` elements of a factor as the hardware sees them.
std::vector<float> widened(const void* data, DType dtype, int64_t count, Precision precision) {
  std::vector<float> wide(static_cast<size_t>(count));
  invariant((precision == Precision::bf16) == (dtype == DType::bf16), "factors have the type of their precision");
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i] = dtype == DType::bf16 ? static_cast<float>(static_cast<const bf16*>(data)[i])
                                   : rounded_to_tf32(static_cast<const float*>(data)[i]);
  return wide;
}

// Stores a result in its type.
void store(const std::vector<float>& from, const Out& to) {
  for (size_t i = 0; i < from.size(); ++i)
    if (to.dtype == DType::bf16) to.as<bf16>()[i] = bf16(from[i]);
    else to.as<float>()[i] = from[i];
}

int64_t images(const ConvGeometry& g) { return g.n * g.h * g.w * g.c; }
int64_t filters(const ConvGeometry& g) { return g.o * g.kh * g.kw * (g.c / g.groups); }
int64_t results(const ConvGeometry& g) { return g.n * g.oh * g.ow * g.o; }
std::vector<float> room(int64_t count) { return std::vector<float>(static_cast<size_t>(count)); }

}  // namespace

void multiply_rounded(const MatmulArgs& args, Precision precision) {
  // The libraries require contiguous lines.
  const auto in_lines = [](const MatrixIn& m, int64_t rows, int64_t columns) {
    return m.col == 1 ? rows <= 1 || m.row >= columns : m.row == 1 && (columns <= 1 || m.col >= rows);
  };
  invariant(in_lines(args.a, args.m, args.k) && in_lines(args.b, args.k, args.n),
            "lines of a factor share no elements");
  const auto reach = [&](const MatrixIn& m, int64_t rows, int64_t columns) {
    return (rows - 1) * m.row + (columns - 1) * m.col + (args.batch - 1) * m.batch + 1;
  };
  const std::vector<float> a = widened(args.a.data, args.dtype, reach(args.a, args.m, args.k), precision),
                           b = widened(args.b.data, args.dtype, reach(args.b, args.k, args.n), precision);
  MatmulArgs wide = args;
  wide.dtype = DType::f32;
  wide.a.data = a.data();
  wide.b.data = b.data();
  if (args.result == DType::f32) return matmul(cpu_stream(), wide);
  std::vector<float> c = room(args.batch * args.m * args.c_row), bias = room(args.bias ? args.n : 0);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(static_cast<const bf16*>(args.bias)[i]);
  invariant(args.c_batch == args.m * args.n && (args.c_row == args.n || args.batch == 1), "a result without gaps");
  wide.c = c.data();
  wide.bias = args.bias ? bias.data() : nullptr;
  matmul(cpu_stream(), wide);
  store(c, {args.c, args.result});
}

void multiply_rounded(const ConvArgs& a, Precision precision) {
  const std::vector<float> x = widened(a.x.data, a.x.dtype, images(a.g), precision),
                           w = widened(a.w.data, a.w.dtype, filters(a.g), precision);
  std::vector<float> y = room(results(a.g));
  conv2d(cpu_stream(), ConvArgs{a.g, {x.data()}, {w.data()}, {y.data()}});
  store(y, a.y);
}

void multiply_rounded(const ConvGradInputArgs& a, Precision precision) {
  const std::vector<float> dy = widened(a.dy.data, a.dy.dtype, results(a.g), precision),
                           w = widened(a.w.data, a.w.dtype, filters(a.g), precision);
  std::vector<float> dx = room(images(a.g));
  conv2d_grad_input(cpu_stream(), ConvGradInputArgs{a.g, {dy.data()}, {w.data()}, {dx.data()}});
  store(dx, a.dx);
}

void multiply_rounded(const ConvGradFilterArgs& a, Precision precision) {
  const std::vector<float> dy = widened(a.dy.data, a.dy.dtype, results(a.g), precision),
                           x = widened(a.x.data, a.x.dtype, images(a.g), precision);
  std::vector<float> dw = room(filters(a.g));
  conv2d_grad_filter(cpu_stream(), ConvGradFilterArgs{a.g, {dy.data()}, {x.data()}, {dw.data()}});
  store(dw, a.dw);
}

}  // namespace elinvar::emulation
