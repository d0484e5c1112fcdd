#pragma once
// Convolution, pooling and upsampling of images (N, H, W, C); filters are (O, KH, KW, C / groups).
#include "autograd/var.h"

namespace elinvar {

struct Extent2 {
  int64_t h = 1, w = 1;
};

struct Conv2dOptions {
  Extent2 stride{1, 1}, padding{0, 0}, dilation{1, 1};
  int64_t groups = 1;
};
Var conv2d(const Var& x, const Var& weight, const Var& bias = {}, const Conv2dOptions& options = {});

// The transposed convolution: what conv2d's gradient does to images. x (N, H, W, C) with filters (C, KH, KW, O) ->
// (N, (H - 1) stride - 2 padding + dilation (KH - 1) + 1, .., O). Products follow NUMERICS.md, rule 10, as those of
// that gradient; groups must be 1, and exact runs compute it portably.
Var conv_transpose2d(const Var& x, const Var& weight, const Var& bias = {}, const Conv2dOptions& options = {});

struct Pool2dOptions {
  Extent2 kernel{2, 2}, stride{2, 2}, padding{0, 0};
  bool count_include_pad = true;  // average pooling divides by the whole window, as PyTorch does
};
Var max_pool2d(const Var& x, const Pool2dOptions& options);  // the lowest index wins at ties
Var avg_pool2d(const Var& x, const Pool2dOptions& options);
Var adaptive_avg_pool2d(const Var& x, Extent2 out);  // (N, H, W, C) -> (N, out.h, out.w, C)

// (N, H, W, C) -> (N, out.h, out.w, C), as PyTorch's interpolate() with align_corners = false.
Var upsample_nearest(const Var& x, Extent2 out);
Var upsample_bilinear(const Var& x, Extent2 out);

}  // namespace elinvar
