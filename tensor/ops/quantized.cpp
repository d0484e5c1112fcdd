// The ops of tensor/quantized.h: they check their operands and call the bodies of ops/quantize.h.
#include "tensor/quantized.h"

#include "tensor/base/check.h"
#include "tensor/op_check.h"
#include "tensor/ops/quantize.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

Tensor check_rows(const char* op, const Tensor& x) {
  check(x.dtype() == DType::f32 && x.ndim() == 3,
        "[{}] float32 of shape (rows, positions, channels) expected, got {} {}", op, name_of(x.dtype()),
        to_string(x.shape()));
  return x.to_contiguous();
}

Tensor check_against(const char* op, const Tensor& against, int64_t count, const Tensor& x) {
  check(against.dtype() == DType::i32 && against.shape() == Shape{count},
        "[{}] int32 exponents ({}) expected, got {} {}", op, count, name_of(against.dtype()),
        to_string(against.shape()));
  check_same_device(op, x, against);
  return against.to_contiguous();
}

QuantizedOut out(Quantized& y) { return {elinvar::out(y.q), elinvar::out(y.rows), elinvar::out(y.channels)}; }

// Numbers of x (R, P, C) that have not been rounded yet.
Quantized empty_rows(const Tensor& x) {
  const int64_t rows = x.dim(0), channels = x.dim(2);
  return {.q = Tensor::empty({rows, x.dim(1), (channels + 1) / 2}, DType::i32, x.device()),
          .rows = Tensor::empty({rows}, DType::i32, x.device()),
          .channels = Tensor::empty({channels}, DType::i32, x.device())};
}

Quantized empty_channels(const Tensor& x) {
  const int64_t rows = x.dim(0), channels = x.dim(2);
  return {.q = Tensor::empty({(rows + 1) / 2, x.dim(1), channels}, DType::i32, x.device()),
          .rows = Tensor::empty({rows}, DType::i32, x.device()),
          .channels = Tensor::empty({channels}, DType::i32, x.device()),
          .pairs = Pairs::rows};
}

Quantized quantize_rows_of(const Tensor& given, const Tensor& given_against) {
  const Tensor x = check_rows("quantize_rows", given);
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2);
  const Tensor against = check_against("quantize_rows", given_against, channels, x);
  Quantized y = empty_rows(x);
  on(x.device(), [&](auto& stream) {
    quantize_rows(stream, QuantizeArgs{in(x), in(against), out(y), rows, positions, channels});
  });
  return y;
}

Quantized quantize_channels_of(const Tensor& given, const Tensor& given_against) {
  const Tensor x = check_rows("quantize_channels", given);
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2);
  const Tensor against = check_against("quantize_channels", given_against, rows, x);
  Quantized y = empty_channels(x);
  on(x.device(), [&](auto& stream) {
    quantize_channels(stream, QuantizeArgs{in(x), in(against), out(y), rows, positions, channels});
  });
  return y;
}

Quantized quantize_affine_rows_of(const Tensor& given, const Tensor& given_a, const Tensor& given_b, bool relu,
                                  const Tensor& given_against) {
  constexpr const char* kName = "quantize_affine_rows";
  const Tensor x = check_rows(kName, given);
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2);
  const Tensor against = check_against(kName, given_against, channels, x),
               a = operand(kName, "a", given_a, {channels}, x), b = operand(kName, "b", given_b, {channels}, x);
  Quantized y = empty_rows(x);
  on(x.device(), [&](auto& stream) {
    quantize_rows(stream, QuantizeArgs{in(x), in(against), out(y), rows, positions, channels, in(a), in(b), relu});
  });
  return y;
}

Quantized pair_affine_rows_of(const Tensor& given, const Tensor& given_a, const Tensor& given_b, bool relu,
                              const Tensor& row_exponents, const Tensor& channel_exponents) {
  constexpr const char* kName = "pair_affine_rows";
  const Tensor x = check_rows(kName, given);
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2);
  check(given_a.defined() == given_b.defined(), "[{}] both a and b, or neither, expected", kName);
  const auto factor = [&](const char* name, const Tensor& t) {
    return t.defined() ? operand(kName, name, t, {channels}, x) : t;
  };
  const Tensor a = factor("a", given_a), b = factor("b", given_b);
  const auto in_if_given = [](const Tensor& t) { return t.defined() ? in(t) : In{}; };
  Quantized y{.q = Tensor::empty({(rows + 1) / 2, positions, channels}, DType::i32, x.device()),
              .rows = check_against(kName, row_exponents, rows, x),
              .channels = check_against(kName, channel_exponents, channels, x),
              .pairs = Pairs::rows};
  on(x.device(), [&](auto& stream) {
    pair_affine_rows(stream, PairAffineRowsArgs{in(x), in_if_given(a), in_if_given(b), in(y.rows), in(y.channels),
                                                elinvar::out(y.q), rows, positions, channels, relu});
  });
  return y;
}

QuantizedBoth quantize_both_of(const Tensor& given, const Tensor& given_channels, const Tensor& given_rows) {
  constexpr const char* kName = "quantize_both";
  const Tensor x = check_rows(kName, given);
  const int64_t rows = x.dim(0), positions = x.dim(1), channels = x.dim(2);
  const Tensor against_channels = check_against(kName, given_channels, channels, x),
               against_rows = check_against(kName, given_rows, rows, x);
  QuantizedBoth y{empty_rows(x), empty_channels(x)};
  on(x.device(), [&](auto& stream) {
    quantize_both(stream, QuantizeBothArgs{in(x), in(against_channels), in(against_rows), out(y.rows), out(y.channels),
                                           rows, positions, channels});
  });
  return y;
}

Quantized quantize_weight_of(const Tensor& given, int64_t groups) {
  const Tensor w = check_rows("quantize_weight", given);
  check(groups > 0 && w.dim(0) % groups == 0, "[quantize_weight] outputs must divide into {} groups, shape is {}",
        groups, to_string(w.shape()));
  const int64_t outputs = w.dim(0), taps = w.dim(1), channels = w.dim(2);
  Quantized y{.q = Tensor::empty({outputs, taps, (channels + 1) / 2}, DType::i32, w.device()),
              .rows = Tensor::empty({outputs}, DType::i32, w.device()),
              .channels = Tensor::empty({groups * channels}, DType::i32, w.device())};
  on(w.device(), [&](auto& stream) {
    quantize_weight(stream, QuantizeWeightArgs{in(w), out(y), groups, outputs / groups, taps, channels});
  });
  return y;
}

Quantized pair_weight_rows_of(const Tensor& given, int64_t groups, const Tensor& row_exponents,
                              const Tensor& channel_exponents) {
  constexpr const char* kName = "pair_weight_rows";
  const Tensor w = check_rows(kName, given);
  const int64_t rows = w.dim(0), taps = w.dim(1), channels = w.dim(2);
  check(groups > 0 && rows % groups == 0 && (groups == 1 || (rows / groups % 2 == 0 && channels % 2 == 0)),
        "[{}] {} groups with even numbers of outputs and channels expected, shape is {}", kName, groups,
        to_string(w.shape()));
  Quantized y{.q = Tensor::empty({(rows + 1) / 2, taps, channels}, DType::i32, w.device()),
              .rows = check_against(kName, row_exponents, rows, w),
              .channels = check_against(kName, channel_exponents, groups * channels, w),
              .pairs = Pairs::rows};
  on(w.device(), [&](auto& stream) {
    pair_weight_rows(stream, PairWeightRowsArgs{in(w), in(y.rows), in(y.channels), elinvar::out(y.q), groups,
                                                rows / groups, taps, channels});
  });
  return y;
}

Quantized pair_rows_of(const Quantized& x) {
  check(x.q.dtype() == DType::i32 && x.q.ndim() == 3 && x.q.dim(0) == x.rows.numel() && x.q.contiguous(),
        "[pair_rows] pairs of channels of shape (rows, positions, pairs) expected, got {}", to_string(x.q.shape()));
  const int64_t rows = x.q.dim(0), positions = x.q.dim(1), pairs = x.q.dim(2),
                channels = std::min(2 * pairs, x.channels.numel());
  Quantized y{.q = Tensor::empty({(rows + 1) / 2, positions, channels}, DType::i32, x.q.device()),
              .rows = x.rows,
              .channels = x.channels,
              .pairs = Pairs::rows};
  on(x.q.device(), [&](auto& stream) {
    pair_rows(stream, PairRowsArgs{in(x.q), elinvar::out(y.q), rows, positions, pairs, channels});
  });
  return y;
}

const Op kQuantizeRows("quantize_rows(x, against)", quantize_rows_of);
const Op kQuantizeChannels("quantize_channels(x, against)", quantize_channels_of);
const Op kQuantizeAffineRows("quantize_affine_rows(x, a, b, relu, against)", quantize_affine_rows_of);
const Op kPairAffineRows("pair_affine_rows(x, a, b, relu, rows, channels)", pair_affine_rows_of);
const Op kQuantizeBoth("quantize_both(x, against_channels, against_rows)", quantize_both_of);
const Op kQuantizeWeight("quantize_weight(w, groups)", quantize_weight_of);
const Op kPairWeightRows("pair_weight_rows(w, groups, rows, channels)", pair_weight_rows_of);
const Op kPairRows("pair_rows(x)", pair_rows_of);

}  // namespace

Quantized quantize_rows(const Tensor& x, const Tensor& against) { return kQuantizeRows(x, against); }
Quantized quantize_channels(const Tensor& x, const Tensor& against) { return kQuantizeChannels(x, against); }
Quantized quantize_affine_rows(const Tensor& x, const Tensor& a, const Tensor& b, bool relu, const Tensor& against) {
  return kQuantizeAffineRows(x, a, b, relu, against);
}
Quantized pair_affine_rows(const Tensor& x, const Tensor& a, const Tensor& b, bool relu, const Tensor& rows,
                           const Tensor& channels) {
  return kPairAffineRows(x, a, b, relu, rows, channels);
}
QuantizedBoth quantize_both(const Tensor& x, const Tensor& against_channels, const Tensor& against_rows) {
  return kQuantizeBoth(x, against_channels, against_rows);
}
Quantized quantize_weight(const Tensor& w, int64_t groups) { return kQuantizeWeight(w, groups); }
Quantized pair_weight_rows(const Tensor& w, int64_t groups, const Tensor& rows, const Tensor& channels) {
  return kPairWeightRows(w, groups, rows, channels);
}
Quantized pair_rows(const Quantized& x) { return kPairRows(x); }

}  // namespace elinvar
