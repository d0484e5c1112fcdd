#pragma once
// Colour jitter of bytes in integer arithmetic: brightness, contrast, saturation and hue change by random amounts in a
// random order. The definition is that of torchvision's ColorJitter, except for where it rounds and that it draws from
// Philox.
//
//   brightness  p' = f p
//   contrast    p' = f p + (1 - f) m, where m is the mean of the image's greys, rounded
//   saturation  p' = f p + (1 - f) g, where g is the pixel's grey
//   hue         rotated by f turns on the hexagon of colours (the largest and the smallest channel value stay)
//
// A grey is (19595 r + 38470 g + 7471 b + 2^15) >> 16. Each f is an integer in units of 2^-16: with amount a = the
// nearest to 2^16 times the setting, uniform in [2^16 - min(a, 2^16), 2^16 + a], of the hue in [-a, a]. A p' is rounded
// to the nearest integer (halves up) and clamped to a byte after each of the four.
#include <cstdint>

#include "data/image.h"
#include "tensor/digest.h"
#include "tensor/philox.h"

namespace elinvar {

class ColorJitter {
 public:
  // Throws SettingError for amounts outside [0, 8] (hue: [0, 1/2]), or of colour where images have one channel.
  ColorJitter(double brightness, double contrast, double saturation, double hue, int64_t channels);

  bool changes_nothing() const { return brightness_ == 0 && contrast_ == 0 && saturation_ == 0 && hue_ == 0; }

  // `amounts` are random words for the four amounts, in the order above; `order` is one for the order in which they are
  // applied: the digits of (order * 24) >> 32 in the bases 4, 3, 2 each pick one of those that are left.
  void operator()(Image& image, const Random4& amounts, uint32_t order) const;

  void describe(Hasher& hasher) const;

 private:
  int32_t brightness_, contrast_, saturation_, hue_;  // in units of 2^-16
};

}  // namespace elinvar
