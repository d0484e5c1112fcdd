#pragma once
// The anchors of a YOLOv3 (J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018), and which of its
// predictions is responsible for which box.
//
// Each scale cuts an image into a grid of cells, from the coarsest scale on; the next has twice the cells along a side.
// A cell has kAnchorsOfScale predictions, one for each anchor of the scale. So a network gives rows (N, rows, 5 +
// classes), in the order (scale, row of cells, column of cells, anchor). With t the numbers of a row, its box has, in
// shares of the image's sides,
//   centre   (sigmoid(t[0]) + column) / g and (sigmoid(t[1]) + row of cells) / g, for g cells along a side
//   sides    width * exp(min(t[2], kLargestExponent)) and height * exp(min(t[3], ..)), with those of the anchor
// t[4] is the logit of the objectness, the rest those of the classes.
//
// A box belongs to the anchor that has the largest intersection over union with it if both have the same centre, of
// equal ones the first; and to the cell of that anchor's scale in which its centre lies. Several boxes may belong to
// one row.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "autograd/var.h"

namespace elinvar {

inline constexpr int64_t kAnchorsOfScale = 3;
inline constexpr int64_t kBoxLogits = 5;           // of a row, before those of the classes
inline constexpr int64_t kTargetNumbers = 5;       // of a target: label, centre x and y, width and height
inline constexpr double kLargestExponent = 4.135;  // about log(1000 / 16), torchvision's: sides stay finite
inline constexpr int64_t kCellNumbers = 6;  // of a row: column, row of cells, g, g, the anchor's width and height

// The rows and cells that are responsible for the boxes of some samples, at most M for each. All tensors are on the
// CPU.
struct Assignment {
  Tensor row;      // (N, M) int64: the responsible row, counted over all samples; any row for padding
  Tensor cell;     // (N, M, kCellNumbers): of that row
  Tensor box;      // (N, M, 4): left, top, right and bottom; those of the image for padding
  Tensor present;  // (N, M, 1): 1 for a box, 0 for padding
  // The loss of a logit x is softplus(sign * x): -1 where it should be high, otherwise 1.
  Tensor label_sign;  // (N, M, classes)
  Tensor found_sign;  // (N, rows): -1 for rows to which a box belongs
};

class Anchors {
 public:
  // `sides` are widths and heights in pixels, kAnchorsOfScale pairs for each scale from the finest on. `stride` is the
  // side of a cell of the coarsest scale.
  Anchors(std::vector<double> sides, int64_t stride) : sides_(std::move(sides)), stride_(stride) {}

  int64_t scales() const { return static_cast<int64_t>(sides_.size()) / (2 * kAnchorsOfScale); }
  // Returns the kCellNumbers of all rows: (1, rows, kCellNumbers). Throws UsageError if no square image has so many
  // rows.
  Tensor cells(int64_t rows) const;
  // Targets are (N, M, kTargetNumbers) float32, in shares of the image's sides; a label below 0 is padding. Throws
  // UsageError for labels of `classes` or more, and for boxes that are empty or have a centre outside the image.
  Assignment assign(const Tensor& targets, int64_t rows, int64_t classes) const;
  std::string key() const;

 private:
  int64_t coarsest(int64_t rows) const;  // cells along a side

  std::vector<double> sides_;
  int64_t stride_;
};

// Sides of boxes, of shapes that broadcast to each other.
struct BoxSides {
  Var x1, y1, x2, y2;
};
// Returns the boxes of rows (.., 4 or more) in cells (.., kCellNumbers), each side (.., 1).
BoxSides boxes_of(const Var& rows, const Tensor& cells);

}  // namespace elinvar
