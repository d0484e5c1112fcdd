#pragma once
// Mixup and cutmix: a training image becomes a mixture of two images, and its target a mixture of their labels.
//
//   mixup   x = l x + (1 - l) y with l from Beta(a, a) (H. Zhang et al., "mixup: Beyond Empirical Risk Minimization",
//           ICLR 2018)
//   cutmix  a rectangle of y replaces the same rectangle of x; its sides are sqrt(1 - l) of the image's, rounded down,
//           its centre is any pixel, and what lies outside the image is cut off (S. Yun et al., "CutMix", ICCV 2019)
//
// y is the next sample of the same virtual rank's batch (after the last, the first), unmixed, so that a rank gradient
// depends on its own samples alone. A batch of one sample stays as it is. If both are set, each applies to half of the
// draws. The share of x in the target is l, or for cutmix the fraction of its area that the rectangle leaves.
//
// Random words are philox(seed ^ key_of("data.mixing"), epoch, index low, index high, block), with the index of x.
// Block 0 chooses between the two (bit 0), and the rectangle's y and x; block 1 + k is the k-th try of Joehnk's draw of
// l: with u and v uniform in (0, 1], U = u^(1/a) and V = v^(1/a), the first of 2000 tries with U + V <= 1 gives l = U /
// (U + V); if there is none, l = 1/2. Powers are products of repeated squares and, for 26 bits of the fraction, square
// roots in binary64, so they are the same on every machine; l is rounded to a multiple of 2^-16. A mixed pixel is
//   l * x + (1 - l) * y
// in three float32 operations.
#include <cstdint>
#include <span>

#include "data/dataset.h"
#include "tensor/tensor.h"

namespace elinvar {

struct Mixing {
  double mixup = 0, cutmix = 0;  // the parameter a of each; 0: off

  bool any() const { return mixup > 0 || cutmix > 0; }
};

// Throws SettingError, with the keys data.mixup and data.cutmix, unless each is 0 or in [0.05, 4], or if the data set
// does not have images.
void check_mixing(const Mixing& mixing, const Dataset& dataset);

// The second half of mixed targets.
struct MixedTargets {
  Tensor other;  // (N) int64: the label of y
  Tensor share;  // (N) float32: the share of x in the target
};

// Mixes images (N, H, W, C) float32 in place, N >= 2. `indices` has the indices of the samples, `labels` (N) theirs.
MixedTargets mix(const Mixing& mixing, std::span<const int64_t> indices, const Draw& draw, const Tensor& labels,
                 Tensor& images);

}  // namespace elinvar
