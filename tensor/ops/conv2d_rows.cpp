#include "tensor/ops/conv2d_rows.h"

namespace elinvar {
namespace {

// Appends `whole`, cut at each change of the set of taps that fall into [0, source_extent).
void append_stretches(const Stretch& whole, int64_t source_extent, std::vector<Stretch>& all) {
  const size_t first = all.size();
  for (int64_t i = 0; i < whole.count; ++i) {
    Stretch here{1,
                 whole.target + i * whole.target_step,
                 whole.target_step,
                 whole.source + i * whole.source_step,
                 whole.source_step,
                 {}};
    for (const AxisTap& tap : whole.taps)
      if (here.source + tap.offset >= 0 && here.source + tap.offset < source_extent) here.taps.push_back(tap);
    const auto same = [](const AxisTap& a, const AxisTap& b) { return a.k == b.k; };
    if (all.size() > first &&
        std::equal(here.taps.begin(), here.taps.end(), all.back().taps.begin(), all.back().taps.end(), same))
      ++all.back().count;
    else all.push_back(std::move(here));
  }
}

}  // namespace

// Output o reads input o * stride - pad + k * dilation.
std::vector<Stretch> forward_axis(const ConvAxis& axis) {
  Stretch whole{axis.out, 0, 1, -axis.pad, axis.stride, {}};
  for (int64_t k = 0; k < axis.kernel; ++k) whole.taps.push_back({k, k * axis.dilation});
  std::vector<Stretch> all;
  append_stretches(whole, axis.in, all);
  return all;
}

// Input i gets contributions from output (i + pad - k * dilation) / stride if that is an integer, so inputs of one
// phase, (i + pad) mod stride, share their taps.
std::vector<Stretch> backward_phases(const ConvAxis& axis) {
  const int64_t stride = axis.stride;
  std::vector<Stretch> all;
  for (int64_t phase = 0; phase < stride; ++phase) {
    const int64_t first = ((phase - axis.pad) % stride + stride) % stride;
    if (first >= axis.in) continue;
    Stretch whole{(axis.in - first + stride - 1) / stride, first, stride, (first + axis.pad - phase) / stride, 1, {}};
    for (int64_t k = 0; k < axis.kernel; ++k)
      if (k * axis.dilation % stride == phase) whole.taps.push_back({k, (phase - k * axis.dilation) / stride});
    all.push_back(std::move(whole));
  }
  return all;
}

std::vector<Stretch> backward_axis(const ConvAxis& axis) {
  std::vector<Stretch> all;
  for (const Stretch& phase : backward_phases(axis)) append_stretches(phase, axis.out, all);
  return all;
}

}  // namespace elinvar
