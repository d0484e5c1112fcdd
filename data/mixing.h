#pragma once
// Mixup and cutmix: a training image becomes a mixture of two, and so does what it is to be told as.
//
//   mixup   x = l x + (1 - l) y with l from Beta(a, a) (H. Zhang et al., "mixup: Beyond Empirical Risk Minimization",
//           ICLR 2018)
//   cutmix  a rectangle of y takes the place of the same one of x: its sides are sqrt(1 - l) of the image's,
//           rounded down, its centre is drawn anywhere, what lies outside is cut off (S. Yun et al., "CutMix", ICCV
//           2019)
//
// y is the next sample of the same virtual rank's batch, after the last the first, as it was before: so a leaf depends
// on its own samples alone. A batch of one is left as it is. With both, one or the other is done, each in half of the
// draws. The share of x in the target is l, or what the rectangle leaves of its area.
//
// Random words are philox(seed ^ key_of("data.mixing"), epoch, index low, index high, block), where the index is that
// of x: block 0 holds which of both (bit 0), and the rectangle's y and x; block 1 + k the k-th try of Joehnk's draw of
// l: with u and v uniform in (0, 1], U = u^(1/a) and V = v^(1/a), the first of 2000 where U + V <= 1 gives l = U / (U +
// V), else l = 1/2. Powers are products of repeated squares and, for 26 bits of the fraction, square roots in binary64,
// so every machine has the same; l is rounded to a multiple of 2^-16. A mixed pixel is l * x + (1 - l) * y in three
// float32 operations.
#include <cstdint>
#include <span>

#include "data/dataset.h"
#include "tensor/tensor.h"

namespace elinvar {

struct Mixing {
  double mixup = 0, cutmix = 0;  // the a of each; 0: not done

  bool any() const { return mixup > 0 || cutmix > 0; }
};

// Throws SettingError, with the keys data.mixup and data.cutmix, unless each is 0 or in [0.05, 4], or if they are to
// mix what is no image.
void check_mixing(const Mixing& mixing, const Dataset& dataset);

// The second half of mixed targets.
struct MixedTargets {
  Tensor other;  // (N) int64: the label of y
  Tensor share;  // (N) float32: what x has of the target
};

// Mixes images (N, H, W, C) float32 in place, N >= 2. `indices` are those of the samples, `labels` (N) theirs.
MixedTargets mix(const Mixing& mixing, std::span<const int64_t> indices, const Draw& draw, const Tensor& labels,
                 Tensor& images);

}  // namespace elinvar
