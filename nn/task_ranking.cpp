// Ranking of candidates: outputs (N, C) and targets (N, C) float32, where one of a sample's C candidates has target 1,
// for example the item that a user chose, and the others have 0. The loss is that of kind "binary" over all of them
// (nn/task_binary.cpp). Validation may have another number of candidates than training.
//
// Metrics, with r as the number of a sample's other candidates whose output is not lower than that of the right one,
// so that a network which gives the same output to all ranks them last:
//   hit_rate   the share of samples with r < k, where k is the setting `at`
//   ndcg       the mean of 1 / log2(r + 2) where r < k, else 0: the normalised discounted cumulative gain of one right
//              candidate among the first k (X. He et al., "Neural Collaborative Filtering", WWW 2017, section 4.1)
#include <cmath>

#include "nn/task.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

class CandidateRanking final : public Objective {
 public:
  CandidateRanking(Task each, int64_t at) : each_(std::move(each)), at_(at) {}

  std::string key() const override { return fmt::format("ranking {} {}", at_, each_->key()); }
  int64_t count(const Targets& targets) const override { return each_->count(targets); }
  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    return {each_->loss(output, targets).loss, {}};
  }
  bool has_accuracy() const override { return false; }

  // The tally of r is the number of samples with it.
  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    const Tensor x = output.to(Device{}).to(DType::f32).to_contiguous(), y = targets.own.to(Device{}).to_contiguous();
    const int64_t candidates = y.dim(-1);
    for (int64_t begin = 0; begin < y.numel(); begin += candidates) {
      const float *const scores = x.data<float>() + begin, *const right = y.data<float>() + begin;
      int64_t chosen = -1, not_lower = -1;
      for (int64_t c = 0; c < candidates; ++c) {
        if (right[c] == 0) continue;
        check(right[c] == 1 && chosen < 0,
              "[ranking] one target of a sample must be 1 and the others 0, got {} at {}{}", right[c], c,
              chosen < 0 ? "" : fmt::format(" after 1 at {}", chosen));
        chosen = c;
      }
      check(chosen >= 0, "[ranking] one target of a sample must be 1, got {} of 0", candidates);
      for (int64_t c = 0; c < candidates; ++c) not_lower += !(scores[c] < scores[chosen]);
      ++score.tallies[not_lower];
    }
  }

  std::map<std::string, double> metrics(const BatchScore& total) const override {
    int64_t samples = 0, hits = 0;
    double gain = 0;
    for (const auto& [rank, number] : total.tallies) {
      samples += number;
      if (rank >= at_) continue;
      hits += number;
      gain += static_cast<double>(number) / std::log2(static_cast<double>(rank + 2));
    }
    return {{"hit_rate", static_cast<double>(hits) / static_cast<double>(samples)},
            {"ndcg", gain / static_cast<double>(samples)}};
  }

 private:
  Task each_;
  int64_t at_;
};

}  // namespace

MadeTask make_ranking(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options) {
  settings.require(targets.dtype == DType::f32 && targets.sample.ndim() == 1 && targets.sample[0] > 1, "kind",
                   "= 'ranking' needs several candidates in a sample, (C) float32, but the data have {} of shape {} a "
                   "sample",
                   name_of(targets.dtype), to_string(targets.sample));
  const int64_t at = settings.integer("at", 10);
  return {Task(std::make_shared<CandidateRanking>(make_binary(settings, targets, options).task, at)), 1};
}

}  // namespace elinvar
