// Segmentation: a class for each pixel. Outputs (N, H, W, classes), targets (N, H, W) int64; the loss is the sum of the
// cross entropies of all pixels that are not ignored (loss.ignore_index), as of classes. Metrics:
//   accuracy   of pixels
//   iou        the mean over classes that occur in targets or predictions of
//              pixels of both / (pixels of the target + pixels predicted - pixels of both)
#include "nn/task.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

class Segmentation final : public Objective {
 public:
  Segmentation(const CrossEntropyOptions& options, int64_t classes)
      : classes_(classes), ignored_(options.ignore_index), pixels_(options) {}

  std::string key() const override { return "segmentation " + pixels_->key(); }
  int64_t count(const Targets& targets) const override { return pixels_->count(targets); }
  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    return pixels_->loss(output, targets);
  }

  // Tallies are, for class k, of pixels of both at 3 k, of the target at 3 k + 1, and predicted at 3 k + 2.
  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    const Tensor x = output.to(Device{}).to(DType::f32).to_contiguous(),
                 y = targets.own.to(Device{}).to(DType::i64).to_contiguous();
    for (int64_t i = 0; i < y.numel(); ++i) {
      const int64_t target = y.data<int64_t>()[i];
      if (target == ignored_) continue;
      const float* const logits = x.data<float>() + i * classes_;
      int64_t best = 0;
      for (int64_t k = 1; k < classes_; ++k)
        if (logits[k] > logits[best]) best = k;
      score.tallies[3 * target] += best == target;
      ++score.tallies[3 * target + 1];
      ++score.tallies[3 * best + 2];
    }
  }

  std::map<std::string, double> metrics(const BatchScore& total) const override {
    const auto tally = [&](int64_t index) {
      const auto found = total.tallies.find(index);
      return found == total.tallies.end() ? int64_t{0} : found->second;
    };
    double sum = 0;
    int64_t seen = 0;
    for (int64_t k = 0; k < classes_; ++k) {
      const int64_t both = tally(3 * k), either = tally(3 * k + 1) + tally(3 * k + 2) - both;
      if (either == 0) continue;
      sum += static_cast<double>(both) / static_cast<double>(either);
      ++seen;
    }
    std::map<std::string, double> all = pixels_->metrics(total);
    all["iou"] = seen > 0 ? sum / static_cast<double>(seen) : 0;
    return all;
  }

 private:
  int64_t classes_, ignored_;
  Task pixels_;
};

}  // namespace

MadeTask make_segmentation(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options) {
  settings.require(targets.dtype == DType::i64 && targets.sample.ndim() == 2, "kind",
                   "= 'segmentation' needs a class for each pixel, (H, W) int64, but the data have {} of shape {} a "
                   "sample",
                   name_of(targets.dtype), to_string(targets.sample));
  return {Task(std::make_shared<Segmentation>(options, targets.classes)), targets.classes};
}

}  // namespace elinvar
