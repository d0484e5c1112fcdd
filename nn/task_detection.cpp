// Detection: finds objects of several classes in images, each with a box. nn/anchors.h has the output, (N, rows, 5 +
// classes), how boxes follow from it, and the rows to which the boxes of the targets belong. Targets are (N, M, 5)
// float32: a label, the centre, width and height in shares of the image's sides; labels below 0 are padding.
//
// The loss of an image is the sum of
//   box_weight * L           for each box, with L of the box that its row predicts:
//     "giou"  1 - IoU + (H - U) / H   for the area U of both boxes and H of the smallest box around both
//                                     (H. Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019)
//     "diou"  1 - IoU + d^2 / D^2     for the distance d of their centres and the diagonal D of that box
//                                     (Z. Zheng et al., "Distance-IoU Loss", AAAI 2020)
//   class_weight * C         for each box: the sum over classes of the binary cross entropies of the row's logits
//   objectness_weight * O    for each row: the binary cross entropy of its objectness, which should be high for rows of
//                            a box. A row that has none does not count if the IoU of its own box with any box of the
//                            image is above ignore_overlap.
// Both binary cross entropies are YOLOv3's; its squared errors of t are replaced by the losses of IoU, which its
// successors use. The three sums are over all elements as one row each (NUMERICS.md, rule 11); products with their
// weights are added from left to right. The mean loss is for an image.
//
// Detections are pairs of a row and a class with a score, sigmoid(objectness) * sigmoid(class), of at least
// score_threshold. Of an image, the kMostCandidates of highest scores (of equal ones the first) pass through
// non-maximum suppression (nn/boxes.h) with most_overlap, and at most most_detections remain.
//
// Metrics (nn/average_precision.h): `map50`, the mean average precision at an IoU of 0.5, and `map`, its mean over
// thresholds from 0.5 to 0.95.
#include <algorithm>
#include <memory>
#include <numeric>

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "nn/anchors.h"
#include "nn/average_precision.h"
#include "nn/detection.h"
#include "nn/task.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"
#include "tensor/ops/compare.h"
#include "tensor/ops/extrema.h"

namespace elinvar {
namespace {

constexpr size_t kMostCandidates = 1000;

struct DetectionOptions {
  std::vector<double> anchors;
  int64_t stride = 32, classes = 1;
  bool distance = false;  // the loss "diou"
  double ignore_overlap = 0.5, box_weight = 1, objectness_weight = 1, class_weight = 1;
  double score_threshold = 0.01, most_overlap = 0.5;
  int64_t most_detections = 100;
};

// Areas of two boxes: of what both cover, and of what either covers.
struct Areas {
  Var both, either;
};
Areas areas_of(const BoxSides& a, const BoxSides& b) {
  const Var both = relu(minimum(a.x2, b.x2) - maximum(a.x1, b.x1)) * relu(minimum(a.y2, b.y2) - maximum(a.y1, b.y1));
  const auto area = [](const BoxSides& box) { return (box.x2 - box.x1) * (box.y2 - box.y1); };
  return {both, (area(a) + area(b)) - both};
}

class DetectionTask final : public Objective, public Detector {
 public:
  explicit DetectionTask(DetectionOptions options) : o_(std::move(options)), anchors_(o_.anchors, o_.stride) {}

  std::string key() const override {
    return fmt::format("detection {} {} {} {} {} {} {} {} {} {}", anchors_.key(), o_.classes, o_.distance,
                       o_.ignore_overlap, o_.box_weight, o_.objectness_weight, o_.class_weight, o_.score_threshold,
                       o_.most_overlap, o_.most_detections);
  }
  int64_t count(const Targets& targets) const override { return targets.own.dim(0); }
  bool has_accuracy() const override { return false; }

  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    const Var x = widened(joined(output));
    check_output(x.value());
    check(targets.own.ndim() == 3 && targets.own.dim(0) == x.dim(0),
          "[detection] targets of {} images expected, got {}", x.dim(0), to_string(targets.own.shape()));
    const int64_t rows = x.dim(1), numbers = x.dim(2);
    const auto assigned = [rows, anchors = anchors_, classes = o_.classes](std::span<const Tensor> from) {
      Assignment a = anchors.assign(from[0], rows, classes);
      return std::vector{a.row, a.cell, a.box, a.present, a.label_sign, a.found_sign};
    };
    std::vector<Tensor> a = derived({targets.own}, assigned);
    for (Tensor& t : std::span(a).subspan(1)) t = t.to(x.value().device());
    const Tensor &row = a[0], &cell = a[1], &box = a[2], &present = a[3], &label_sign = a[4], &found_sign = a[5];
    const auto side = [&box = box](int64_t i) { return Var(box.slice(-1, i, i + 1)); };
    const BoxSides boxes{side(0), side(1), side(2), side(3)};

    const Var own = embedding(reshape(x, {-1, numbers}), row);
    const Var of_boxes = sum(box_loss(boxes_of(own, cell), boxes) * Var(present));
    const Var of_classes = sum(softplus(slice(own, -1, kBoxLogits, numbers) * Var(label_sign)) * Var(present));
    const Var objectness = reshape(slice(x, -1, kBoxLogits - 1, kBoxLogits), {x.dim(0), rows});
    const Var of_rows =
        sum(softplus(objectness * Var(found_sign)) * Var(counted(x.value(), boxes, present, found_sign)));
    return {(of_boxes * o_.box_weight + of_classes * o_.class_weight) + of_rows * o_.objectness_weight, {}};
  }

  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    const std::vector<std::vector<Detection>> found = detect(output);
    const Tensor y = targets.own.to(Device{}).to_contiguous();
    const int64_t most = y.dim(1);
    for (int64_t n = 0; n < y.dim(0); ++n) {
      std::vector<LabelledBox> boxes;
      for (int64_t i = n * most; i < (n + 1) * most; ++i) {
        const float* const t = y.data<float>() + i * kTargetNumbers;
        if (t[0] < 0) continue;
        const float w = t[3] * 0.5f, h = t[4] * 0.5f;
        boxes.push_back({{t[1] - w, t[2] - h, t[1] + w, t[2] + h}, static_cast<int64_t>(t[0])});
      }
      tally_detections(found[static_cast<size_t>(n)], boxes, score.tallies);
    }
  }
  std::map<std::string, double> metrics(const BatchScore& total) const override {
    const auto precisions = average_precision(total.tallies);
    return {{"map50", precisions[0]},
            {"map", std::accumulate(precisions.begin(), precisions.end(), 0.0) / kOverlapThresholds}};
  }

  std::vector<std::vector<Detection>> detect(const Tensor& output) const override {
    const NoGrad constant;
    const Tensor x = output.to(Device{}).to(DType::f32).to_contiguous();
    check_output(x);
    const int64_t rows = x.dim(1), numbers = x.dim(2), classes = o_.classes;
    const BoxSides sides = boxes_of(x, anchors_.cells(rows));
    const Tensor boxes = concat({sides.x1, sides.y1, sides.x2, sides.y2}, -1).value().to_contiguous();
    const Tensor scores =
        (sigmoid(slice(x, -1, kBoxLogits - 1, kBoxLogits)) * sigmoid(slice(x, -1, kBoxLogits, numbers)))
            .value()
            .to_contiguous();
    std::vector<std::vector<Detection>> found;
    for (int64_t n = 0; n < x.dim(0); ++n) {
      std::vector<Detection> candidates;
      for (int64_t i = n * rows * classes; i < (n + 1) * rows * classes; ++i) {
        const float score = scores.data<float>()[i];
        if (!(score >= static_cast<float>(o_.score_threshold))) continue;
        const float* const b = boxes.data<float>() + 4 * (i / classes);
        candidates.push_back({.box = {b[0], b[1], b[2], b[3]}, .score = score, .label = i % classes});
      }
      std::ranges::stable_sort(candidates, std::ranges::greater(), &Detection::score);
      candidates.resize(std::min(candidates.size(), kMostCandidates));
      std::vector<Detection>& kept = found.emplace_back();
      for (const int64_t i :
           non_maximum_suppression(candidates, static_cast<float>(o_.most_overlap), o_.most_detections))
        kept.push_back(candidates[static_cast<size_t>(i)]);
    }
    return found;
  }

 private:
  void check_output(const Tensor& x) const {
    check(x.ndim() == 3 && x.dim(2) == kBoxLogits + o_.classes,
          "[detection] outputs (N, rows, {}) expected, as of a network of kind 'yolov3', got {}",
          kBoxLogits + o_.classes, to_string(x.shape()));
  }

  // (N, M, 1)
  Var box_loss(const BoxSides& a, const BoxSides& b) const {
    const Areas areas = areas_of(a, b);
    const Var off = add(-(areas.both / areas.either), 1.0);
    const Var width = maximum(a.x2, b.x2) - minimum(a.x1, b.x1), height = maximum(a.y2, b.y2) - minimum(a.y1, b.y1);
    if (!o_.distance) {
      const Var hull = width * height;
      return off + (hull - areas.either) / hull;
    }
    const Var dx = (a.x1 + a.x2) - (b.x1 + b.x2), dy = (a.y1 + a.y2) - (b.y1 + b.y2);  // twice the distances
    return off + (square(dx) + square(dy)) * 0.25 / (square(width) + square(height));
  }

  // Returns (N, rows): 1 for rows whose objectness counts, else 0.
  Tensor counted(const Tensor& x, const BoxSides& boxes, const Tensor& present, const Tensor& found_sign) const {
    const NoGrad constant;
    const int64_t n = x.dim(0), rows = x.dim(1);
    const Device device = x.device();
    const Tensor here = anchors_.cells(rows), in_graph = graph_constant(here, device);
    BoxSides own = boxes_of(x, in_graph.defined() ? in_graph : here.to(device));
    for (Var* const side : {&own.x1, &own.y1, &own.x2, &own.y2}) *side = reshape(*side, {n, 1, rows});
    const Areas areas = areas_of(own, boxes);
    const Tensor overlap = max((areas.both / areas.either * Var(present)).value(), 1).value;
    const auto number = [&](double value) { return Tensor::scalar(value, DType::f32, device); };
    const Tensor near = greater(overlap, number(o_.ignore_overlap));
    return where(less(found_sign, number(0)), number(1), where(near, number(0), number(1)));
  }

  DetectionOptions o_;
  Anchors anchors_;
};

// YOLOv3's for images of 416 x 416.
const std::vector<double> kUsualAnchors = {10, 13, 16,  30,  33, 23,  30,  61,  62,
                                           45, 59, 119, 116, 90, 156, 198, 373, 326};

}  // namespace

MadeTask make_detection(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions&) {
  settings.require(
      targets.dtype == DType::f32 && targets.sample.ndim() == 2 && targets.sample[1] == kTargetNumbers &&
          targets.classes > 0 && targets.classes <= kMostLabels,
      "kind",
      "= 'detection' needs boxes of up to {} classes, (boxes, {}) float32, but the data have {} of shape {} "
      "a sample and {} classes",
      kMostLabels, kTargetNumbers, name_of(targets.dtype), to_string(targets.sample), targets.classes);
  DetectionOptions o{.anchors = settings.reals("anchors", kUsualAnchors, 1e-3, 1 << 14)};
  settings.require(!o.anchors.empty() && o.anchors.size() % (2 * kAnchorsOfScale) == 0, "anchors",
                   "needs the widths and heights of {} anchors for each scale, got {} numbers", kAnchorsOfScale,
                   o.anchors.size());
  o.classes = targets.classes;
  o.stride = settings.integer("stride", 32, 1, 1 << 12);
  o.distance = settings.choice("box_loss", "giou", {"giou", "diou"}) == "diou";
  o.ignore_overlap = settings.real("ignore_overlap", 0.5, 0, 1);
  o.box_weight = settings.real("box_weight", 2, 0, 1e6);
  o.objectness_weight = settings.real("objectness_weight", 1, 0, 1e6);
  o.class_weight = settings.real("class_weight", 1, 0, 1e6);
  o.score_threshold = settings.real("score_threshold", 0.01, 0, 1);
  o.most_overlap = settings.real("most_overlap", 0.5, 0, 1);
  o.most_detections = settings.integer("most_detections", 100, 1, kMostCandidates);
  const int64_t outputs = kBoxLogits + o.classes;
  return {Task(std::make_shared<DetectionTask>(std::move(o))), outputs};
}

}  // namespace elinvar
