#include "nn/anchors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "autograd/pointwise.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

float overlap_at_one_centre(float w1, float h1, float w2, float h2) {
  const float both = std::min(w1, w2) * std::min(h1, h2);
  return both / ((w1 * h1 + w2 * h2) - both);
}

}  // namespace

std::string Anchors::key() const { return fmt::format("{} {}", fmt::join(sides_, ","), stride_); }

int64_t Anchors::coarsest(int64_t rows) const {
  int64_t of_one_cell = 0;
  for (int64_t scale = 0; scale < scales(); ++scale) of_one_cell += kAnchorsOfScale << (2 * scale);
  const auto g = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(rows / of_one_cell))));
  check(g > 0 && g * g * of_one_cell == rows,
        "[detection] {} predictions for an image are not those of {} scales of {} anchors over square images; "
        "task.anchors has {} numbers, and needs {} for each scale of the network: yolov3 has 3 scales, yolov3_tiny 2",
        rows, scales(), kAnchorsOfScale, sides_.size(), 2 * kAnchorsOfScale);
  return g;
}

Tensor Anchors::cells(int64_t rows) const {
  const int64_t coarse = coarsest(rows);
  const auto image = static_cast<double>(coarse * stride_);
  Tensor cells = Tensor::empty({1, rows, kCellNumbers});
  float* to = cells.data<float>();
  for (int64_t scale = 0; scale < scales(); ++scale) {
    const int64_t g = coarse << scale;
    const double* const anchors = sides_.data() + 2 * kAnchorsOfScale * (scales() - 1 - scale);
    for (int64_t i = 0; i < g * g * kAnchorsOfScale; ++i, to += kCellNumbers) {
      const int64_t cell = i / kAnchorsOfScale, anchor = i % kAnchorsOfScale;
      to[0] = static_cast<float>(cell % g);
      to[1] = static_cast<float>(cell / g);
      to[2] = to[3] = static_cast<float>(g);
      to[4] = static_cast<float>(anchors[2 * anchor] / image);
      to[5] = static_cast<float>(anchors[2 * anchor + 1] / image);
    }
  }
  return cells;
}

Assignment Anchors::assign(const Tensor& targets, int64_t rows, int64_t classes) const {
  check(targets.ndim() == 3 && targets.dim(2) == kTargetNumbers && targets.dtype() == DType::f32,
        "[detection] targets (N, boxes, {}) float32 expected, got {} {}", kTargetNumbers, name_of(targets.dtype()),
        to_string(targets.shape()));
  const int64_t n = targets.dim(0), most = targets.dim(1), coarse = coarsest(rows);
  const Tensor given = targets.to_contiguous(), all = cells(rows);
  Assignment a{.row = Tensor::zeros({n, most}, DType::i64),
               .cell = Tensor::zeros({n, most, kCellNumbers}),
               .box = Tensor::zeros({n, most, 4}),
               .present = Tensor::zeros({n, most, 1}),
               .label_sign = Tensor::full({n, most, classes}, 1),
               .found_sign = Tensor::full({n, rows}, 1)};
  // Returns the first row of the cell in which the centre lies, for the scale with g cells along a side.
  const auto first_row = [&](float x, float y, int64_t scale) {
    const int64_t g = coarse << scale;
    const auto cell = [g](float share) { return std::min(static_cast<int64_t>(share * static_cast<float>(g)), g - 1); };
    int64_t row = 0;
    for (int64_t s = 0; s < scale; ++s) row += kAnchorsOfScale * (coarse << s) * (coarse << s);
    return row + kAnchorsOfScale * (cell(y) * g + cell(x));
  };
  for (int64_t i = 0; i < n * most; ++i) {
    const float* const target = given.data<float>() + i * kTargetNumbers;
    float* const box = a.box.data<float>() + 4 * i;
    int64_t row = 0;
    if (target[0] < 0) {
      box[2] = box[3] = 1;
    } else {
      const float x = target[1], y = target[2], w = target[3], h = target[4];
      const auto label = static_cast<int64_t>(target[0]);
      check(label < classes && static_cast<float>(label) == target[0], "[detection] labels are from 0 to {}, got {}",
            classes - 1, target[0]);
      check(x >= 0 && x <= 1 && y >= 0 && y <= 1 && w > 0 && h > 0 && w <= 1 && h <= 1,
            "[detection] boxes have centres and sides within an image of sides 1, got centre ({}, {}), sides {} x {}",
            x, y, w, h);
      float best = -1;
      for (int64_t k = 0; k < scales() * kAnchorsOfScale; ++k) {  // in the order of `sides_`
        const int64_t scale = scales() - 1 - k / kAnchorsOfScale;
        const int64_t at = first_row(x, y, scale) + k % kAnchorsOfScale;
        const float* const anchor = all.data<float>() + at * kCellNumbers + 4;
        const float overlap = overlap_at_one_centre(w, h, anchor[0], anchor[1]);
        if (overlap > best) {
          best = overlap;
          row = at;
        }
      }
      const float corners[] = {x - w * 0.5f, y - h * 0.5f, x + w * 0.5f, y + h * 0.5f};
      std::ranges::copy(corners, box);
      a.present.data<float>()[i] = 1;
      a.label_sign.data<float>()[i * classes + label] = -1;
      a.found_sign.data<float>()[i / most * rows + row] = -1;
    }
    a.row.data<int64_t>()[i] = i / most * rows + row;
    std::copy_n(all.data<float>() + row * kCellNumbers, kCellNumbers, a.cell.data<float>() + i * kCellNumbers);
  }
  return a;
}

BoxSides boxes_of(const Var& rows, const Tensor& cells) {
  const auto part = [&](int64_t first) { return Var(cells.slice(-1, first, first + 2)); };
  const Var most = Tensor::scalar(kLargestExponent, DType::f32, rows.value().device());
  const Var centre = (sigmoid(slice(rows, -1, 0, 2)) + part(0)) / part(2);
  const Var half = exp(minimum(slice(rows, -1, 2, 4), most)) * (part(4) * 0.5);
  const Var low = centre - half, high = centre + half;
  return {slice(low, -1, 0, 1), slice(low, -1, 1, 2), slice(high, -1, 0, 1), slice(high, -1, 1, 2)};
}

}  // namespace elinvar
