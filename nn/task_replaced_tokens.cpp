// Replaced tokens, which ELECTRA finds (models/electra.cpp): outputs (N, T, V + 2) are logits of V symbols at each
// place, the logit x of the probability that the place's token was replaced, and y, 1 if it was, otherwise 0. Targets
// (N, T) are the tokens to be predicted; others are ignored. The loss is the cross entropy of the targets, plus
// `weight` times the sum over all places of y s(-x) + (1 - y) s(x), with s of nn/task_binary.cpp, and the mean is over
// targets that are not ignored. So, with a share m of the tokens to be predicted, the mean over all places has the
// weight `weight` / m, in the default 50 for m = 0.15, as in ELECTRA.
//
// Metrics: accuracy, of the targets; replaced_accuracy, of all places; replaced_f1, of the replaced ones.
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "nn/task.h"
#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

class ReplacedTokens final : public Objective {
 public:
  ReplacedTokens(const CrossEntropyOptions& options, int64_t symbols, double weight)
      : tokens_(options), symbols_(symbols), weight_(weight) {}

  std::string key() const override { return fmt::format("replaced_tokens {} {}", weight_, tokens_->key()); }
  int64_t count(const Targets& targets) const override { return tokens_->count(targets); }

  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    const ShardedLogits all = divided(output);
    const LossAndTop1 restored =
        tokens_->loss({.parts = all.parts, .shards = all.shards, .classes = all.classes}, targets);
    const Var x = slice(all.further, 2, 0, 1);
    const Tensor y = all.further.value().slice(2, 1, 2).to_contiguous();
    const Tensor kept = sub(Tensor::scalar(1, DType::f32, y.device()), y);
    const Var found = Var(y) * softplus(-x) + Var(kept) * softplus(x);
    return {restored.loss + sum(found) * weight_, restored.top1};
  }

  // Tallies are, with 2 for replaced places, plus 1 for those that are found to be.
  void judge(const Tensor& output, const Targets&, BatchScore& score) const override {
    const Tensor all = output.to(Device{}).to(DType::f32).to_contiguous();
    for (int64_t end = symbols_ + 2; end <= all.numel(); end += symbols_ + 2) {
      const float* const place = all.data<float>() + end - 2;
      ++score.tallies[2 * (place[1] > 0.5f) + (place[0] > 0)];
    }
  }
  std::map<std::string, double> metrics(const BatchScore& total) const override {
    const auto tally = [&](int64_t index) {
      const auto found = total.tallies.find(index);
      return found == total.tallies.end() ? 0.0 : static_cast<double>(found->second);
    };
    const double right = tally(0) + tally(3), wrong = tally(1) + tally(2), positives = 2 * tally(3) + wrong;
    std::map<std::string, double> all = tokens_->metrics(total);
    all["replaced_accuracy"] = right / (right + wrong);
    all["replaced_f1"] = positives > 0 ? 2 * tally(3) / positives : 0;
    return all;
  }

 private:
  // Splits outputs that are joined, as those of evaluations are, into logits and further outputs.
  ShardedLogits divided(const ShardedLogits& output) const {
    if (output.further.defined() && output.classes == symbols_ && output.further.dim(-1) == 2) return output;
    const Var all = widened(joined(output));
    check(all.ndim() == 3 && all.dim(2) == symbols_ + 2, "[replaced_tokens] outputs (N, T, {}) expected, got {}",
          symbols_ + 2, to_string(all.shape()));
    return {
        .parts = {slice(all, 2, 0, symbols_)}, .classes = symbols_, .further = slice(all, 2, symbols_, symbols_ + 2)};
  }

  Task tokens_;
  int64_t symbols_;
  double weight_;
};

}  // namespace

MadeTask make_replaced_tokens(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options) {
  settings.require(targets.dtype == DType::i64 && targets.sample.ndim() == 1, "kind",
                   "= 'replaced_tokens' needs tokens, (T) int64, but the data have {} of shape {} a sample",
                   name_of(targets.dtype), to_string(targets.sample));
  const double weight = settings.real("weight", 7.5, 0.0, 1e6);
  return {Task(std::make_shared<ReplacedTokens>(options, targets.classes, weight)), targets.classes};
}

}  // namespace elinvar
