#include "nn/task.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/base/registry.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/top1_correct.h"

namespace elinvar {
namespace {

class Classification final : public Objective {
 public:
  explicit Classification(const CrossEntropyOptions& options) : options_(options) {}

  std::string key() const override {
    return fmt::format("classification {} {}", options_.label_smoothing, options_.ignore_index);
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
  std::map<std::string, double> metrics(const BatchScore& total) const override {
    return {{"accuracy", static_cast<double>(total.correct) / static_cast<double>(total.count)}};
  }

 private:
  CrossEntropyOptions options_;
};

Registry<TaskKind>& registry_of_tasks() {
  static Registry<TaskKind> all({{"classification", {}},
                                 {"regression", make_regression},
                                 {"binary", make_binary},
                                 {"segmentation", make_segmentation},
                                 {"detection", make_detection}});
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

Task::Task(const CrossEntropyOptions& options) : objective_(std::make_shared<Classification>(options)) {}

MadeTask make_task(const Spec& spec, const CrossEntropyOptions& options, const TargetInfo& targets, Spec* resolved) {
  Spec named = spec;
  if (named.kind.empty()) named.kind = "classification";
  Settings settings(named, "task", resolved);
  const TaskKind* kind = registry_of_tasks().find(named.kind);
  settings.require(kind != nullptr, "kind", "does not know '{}'{}", named.kind,
                   spelling_hint(named.kind, task_kinds()));
  if (kind->make) {
    settings.require(options.label_smoothing == 0, "kind",
                     "= '{}' does not smooth labels: loss.label_smoothing must be 0, got {}", named.kind,
                     options.label_smoothing);
    MadeTask made = kind->make(settings, targets, options);
    settings.finish();
    return made;
  }
  settings.require(targets.dtype == DType::i64, "kind",
                   "= 'classification' needs targets that are classes, but the data have numbers, {} of shape {} a "
                   "sample; other tasks are 'regression' and 'binary'",
                   name_of(targets.dtype), to_string(targets.sample));
  settings.finish();
  return {Task(options), targets.classes};
}

void register_task(TaskKind kind) { registry_of_tasks().add(std::move(kind), "task"); }

std::vector<std::string> task_kinds() { return registry_of_tasks().names(); }

int64_t correct_of(const Tensor& top1) {
  if (!top1.defined()) return 0;
  return std::ranges::count(top1.span<uint8_t>(), static_cast<uint8_t>(Top1::correct));
}

}  // namespace elinvar
