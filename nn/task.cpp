#include "nn/task.h"

#include <algorithm>
#include <span>
#include <utility>

#include "nn/ranks.h"
#include "tensor/base/check.h"
#include "tensor/base/registry.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/top1_correct.h"

namespace elinvar {
namespace {

class Classification final : public Objective {
 public:
  // `top`: k above 0 makes validation also count targets among the k classes with the largest logits.
  Classification(const CrossEntropyOptions& options, int64_t top) : options_(options), top_(top) {}

  std::string key() const override {
    return fmt::format("classification {} {} {}", options_.label_smoothing, options_.ignore_index, top_);
  }
  int64_t count(const Targets& targets) const override {
    const Tensor all = targets.own.to(Device{}).to_contiguous();
    const auto counts = [ignored = options_.ignore_index](auto target) { return target != ignored; };
    if (all.dtype() == DType::i32) return std::ranges::count_if(all.span<int32_t>(), counts);
    return std::ranges::count_if(all.span<int64_t>(), counts);
  }
  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    return cross_entropy(output, targets, options_);
  }
  // The only tally is of targets among the `top` first.
  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    if (top_ == 0) return;
    const Tensor x = output.to(Device{}).to(DType::f32).to_contiguous(),
                 y = targets.own.to(Device{}).to(DType::i64).to_contiguous();
    const auto classes = static_cast<size_t>(x.dim(-1));
    for (size_t row = 0; row < static_cast<size_t>(y.numel()); ++row) {
      const int64_t target = y.data<int64_t>()[row];
      if (target == options_.ignore_index) continue;
      score.tallies[0] += rank_of(std::span(x.data<float>() + row * classes, classes), target) < top_;
    }
  }
  std::map<std::string, double> metrics(const BatchScore& total) const override {
    const auto share = [&](int64_t number) { return static_cast<double>(number) / static_cast<double>(total.count); };
    std::map<std::string, double> all = {{"accuracy", share(total.correct)}};
    if (top_ > 0) all[fmt::format("top{}_accuracy", top_)] = share(total.tallies.contains(0) ? total.tallies.at(0) : 0);
    return all;
  }

 private:
  CrossEntropyOptions options_;
  int64_t top_;
};

MadeTask make_classification(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options) {
  settings.require(
      targets.dtype == DType::i64, "kind",
      "= 'classification' needs targets that are classes, but the data have numbers, {} of shape {} a "
      "sample; tasks of numbers are 'regression' and 'binary', of boxes 'detection', of candidates 'ranking'",
      name_of(targets.dtype), to_string(targets.sample));
  // Older runs lack the setting, so a task has it only if its configuration does.
  const int64_t top = settings.has("top_k") ? settings.integer("top_k", 0, 0, targets.classes) : 0;
  return {Task(std::make_shared<Classification>(options, top)), targets.classes};
}

Registry<TaskKind>& registry_of_tasks() {
  static Registry<TaskKind> all({{"classification", make_classification},
                                 {"regression", make_regression},
                                 {"binary", make_binary},
                                 {"segmentation", make_segmentation},
                                 {"detection", make_detection},
                                 {"ranking", make_ranking},
                                 {"heads", make_heads},
                                 {"replaced_tokens", make_replaced_tokens}});
  return all;
}

}  // namespace

void BatchScore::add(const BatchScore& next) {
  loss_sum += next.loss_sum;
  count += next.count;
  correct += next.correct;
  samples += next.samples;
  sums.resize(std::max(sums.size(), next.sums.size()));
  for (size_t i = 0; i < next.sums.size(); ++i) sums[i] += next.sums[i];
  for (const auto& [index, number] : next.tallies) tallies[index] += number;
  add_loads(loads, next.loads);
}

void Objective::judge(const Tensor&, const Targets&, BatchScore&) const {}

Task::Task(const CrossEntropyOptions& options) : objective_(std::make_shared<Classification>(options, 0)) {}

MadeTask make_task(const Spec& spec, const CrossEntropyOptions& options, const TargetInfo& targets, Spec* resolved) {
  Spec named = spec;
  if (named.kind.empty()) named.kind = "classification";
  Settings settings(named, "task", resolved);
  MadeTask made = make_named_task(settings, options, targets);
  settings.finish();
  return made;
}

MadeTask make_named_task(Settings& settings, const CrossEntropyOptions& options, const TargetInfo& targets) {
  const std::string& name = settings.kind();
  const TaskKind* kind = registry_of_tasks().find(name);
  settings.require(kind != nullptr, "kind", "does not know '{}'{}", name, spelling_hint(name, task_kinds()));
  settings.require(options.label_smoothing == 0 || name == "classification" || name == "heads", "kind",
                   "= '{}' does not smooth labels: loss.label_smoothing must be 0, got {}", name,
                   options.label_smoothing);
  return kind->make(settings, targets, options);
}

void register_task(TaskKind kind) { registry_of_tasks().add(std::move(kind), "task"); }

std::vector<std::string> task_kinds() { return registry_of_tasks().names(); }

int64_t correct_of(const Tensor& top1) {
  if (!top1.defined()) return 0;
  return std::ranges::count(top1.span<uint8_t>(), static_cast<uint8_t>(Top1::correct));
}

}  // namespace elinvar
