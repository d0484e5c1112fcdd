// Binary classification of L labels that exclude each other or not: outputs x (N, L), or (N, 1) for targets (N), are
// logits of the probability p = 1 / (1 + e^-x) that a label applies; targets y are from 0 to 1, float32 or int64.
//
// With s(x) = log(1 + e^x), tensor/ops/pointwise.h's softplus, the loss is the sum over all elements, in float32, of
//   y w e^(-g s(x)) s(-x) + (1 - y) e^(-g s(-x)) s(x)
// with w = positive_weight and g = focal_gamma: binary cross entropy for g = 0, where the powers of e are left out, and
// otherwise the focal loss (T.-Y. Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017), whose factors are
// (1 - p)^g and p^g. An element is predicted correctly if x > 0 just where y > 1/2.
//
// Metrics, of all elements together, with y > 1/2 as the label:
//   accuracy
//   f1    2 TP / (2 TP + FP + FN) for predictions x > 0; 0 if there is no positive
//   auc   the probability that a positive has a higher logit than a negative, with ties counted half. Logits that are
//         equal in their first 16 bits (a relative 2^-7) count as equal. 0.5 if either is absent.
#include <array>
#include <bit>

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "nn/task.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"
#include "tensor/ops/compare.h"
#include "tensor/ops/top1_correct.h"

namespace elinvar {
namespace {

// Indices of BatchScore::tallies: of predictions, and two for each bin of logits, from the lowest to the highest.
enum : int64_t { kTruePositives, kFalsePositives, kFalseNegatives, kBins };

// The upper half of a key that orders floats as integers, with -0 as 0.
int64_t bin_of(float logit) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return ((bits >> 31) != 0 ? ~bits : bits | 0x80000000u) >> 16;
}

class Binary final : public Objective {
 public:
  Binary(double positive_weight, double focal_gamma) : positive_weight_(positive_weight), gamma_(focal_gamma) {}

  std::string key() const override { return fmt::format("binary {} {}", positive_weight_, gamma_); }
  int64_t count(const Targets& targets) const override { return targets.own.numel(); }

  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    const Var x = widened(joined(output));
    const Tensor& own = targets.own;
    check(own.ndim() >= 1 && own.dim(0) == x.dim(0) && own.numel() == x.value().numel() &&
              (own.dtype() == DType::f32 || own.dtype() == DType::i64),
          "[binary] outputs {} need as many targets, float32 or int64, got {} {}", to_string(x.shape()),
          name_of(own.dtype()), to_string(own.shape()));
    const Device device = x.value().device();
    const Tensor y = derived({own}, probabilities)[0].to(device).reshape(x.shape());
    const Var up = softplus(x), down = softplus(-x);
    const Var positive = Var(y) * down, negative = Var(sub(Tensor::scalar(1, DType::f32, device), y)) * up;
    const Var loss = gamma_ == 0 ? weighted(positive) + negative
                                 : weighted(positive) * exp(up * -gamma_) + negative * exp(down * -gamma_);
    const Tensor right = equal(greater(x.value(), Tensor::scalar(0, DType::f32, device)),
                               greater(y, Tensor::scalar(0.5, DType::f32, device)));
    const auto flag = [&](Top1 top1) { return Tensor::scalar(static_cast<double>(top1), DType::u8, device); };
    return {sum(loss), where(right, flag(Top1::correct), flag(Top1::wrong)).to_contiguous()};
  }

  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    const Tensor x = output.to(Device{}).to(DType::f32).to_contiguous(),
                 y = probabilities(std::array{targets.own.to(Device{})})[0];
    for (int64_t i = 0; i < y.numel(); ++i) {
      const float logit = x.data<float>()[i];
      const bool label = y.data<float>()[i] > 0.5f, predicted = logit > 0;
      if (label || predicted)
        ++score.tallies[label && predicted ? kTruePositives : predicted ? kFalsePositives : kFalseNegatives];
      ++score.tallies[kBins + 2 * bin_of(logit) + label];
    }
  }
  std::map<std::string, double> metrics(const BatchScore& total) const override {
    const auto tally = [&](int64_t index) {
      const auto found = total.tallies.find(index);
      return found == total.tallies.end() ? 0.0 : static_cast<double>(found->second);
    };
    const double positives = 2 * tally(kTruePositives) + tally(kFalsePositives) + tally(kFalseNegatives);
    return {{"accuracy", static_cast<double>(total.correct) / static_cast<double>(total.count)},
            {"auc", area(total)},
            {"f1", positives > 0 ? 2 * tally(kTruePositives) / positives : 0}};
  }

 private:
  Var weighted(const Var& positive) const { return positive_weight_ == 1 ? positive : positive * positive_weight_; }

  // Targets as float32.
  static std::vector<Tensor> probabilities(std::span<const Tensor> given) {
    const Tensor y = given[0].to_contiguous();
    Tensor all = Tensor::empty(y.shape());
    for (int64_t i = 0; i < y.numel(); ++i) {
      const float p = y.dtype() == DType::f32 ? y.data<float>()[i] : static_cast<float>(y.data<int64_t>()[i]);
      check(p >= 0 && p <= 1, "[binary] targets are probabilities from 0 to 1, got {}", p);
      all.data<float>()[i] = p;
    }
    return {all};
  }

  // Twice the number of pairs of a negative and a positive in the right order, with ties counted half, is an integer
  // below 2^63 for fewer than 2^32 targets.
  static double area(const BatchScore& total) {
    uint64_t ordered = 0, negatives = 0, positives = 0;
    for (auto bin = total.tallies.lower_bound(kBins); bin != total.tallies.end();) {
      std::array<uint64_t, 2> here = {};
      for (const int64_t at = (bin->first - kBins) / 2; bin != total.tallies.end() && (bin->first - kBins) / 2 == at;
           ++bin)
        here[static_cast<size_t>((bin->first - kBins) % 2)] = static_cast<uint64_t>(bin->second);
      ordered += here[1] * (2 * negatives + here[0]);
      negatives += here[0];
      positives += here[1];
    }
    if (negatives == 0 || positives == 0) return 0.5;
    return static_cast<double>(ordered) / (2 * static_cast<double>(negatives) * static_cast<double>(positives));
  }

  double positive_weight_, gamma_;
};

}  // namespace

MadeTask make_binary(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions&) {
  settings.require(
      targets.dtype == DType::f32 || (targets.classes == 2 && targets.sample.ndim() == 0), "kind",
      "= 'binary' needs probabilities, or a class of two, but the data have {} of shape {} a sample and {} "
      "classes",
      name_of(targets.dtype), to_string(targets.sample), targets.classes);
  const double weight = settings.real("positive_weight", 1.0, 1e-6, 1e6);
  const double gamma = settings.real("focal_gamma", 0.0, 0.0, 16.0);
  return {Task(std::make_shared<Binary>(weight, gamma)), targets.sample.numel()};
}

}  // namespace elinvar
