#pragma once
// A task: what a network is trained for. It has the loss of the network's output, and the numbers by which validation
// judges the output.
//
//   Task()                                           classes or next tokens: cross entropy and accuracy
//   Task(CrossEntropyOptions{.label_smoothing = 0.1})
//   make_task({.kind = "regression"}, {}, info)      what a configuration names, here numbers
//
// A task is a handle to an objective, which does not change. Programs add kinds of their own with register_task().
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autograd/loss.h"
#include "nn/expert_load.h"
#include "tensor/base/spec.h"

namespace elinvar {

// The score of the outputs for some samples. Batches are added one after another (NUMERICS.md, rule 29).
struct BatchScore {
  double loss_sum = 0;
  int64_t count = 0;    // targets that count: the divisor of the mean loss
  int64_t correct = 0;  // of them, those that the network predicts correctly
  int64_t samples = 0;
  std::vector<double> sums = {};            // of an objective's own
  std::map<int64_t, int64_t> tallies = {};  // numbers of things that an objective counts, by its own index
  std::vector<ExpertLoad> loads = {};       // of mixtures of experts

  void add(const BatchScore& next);
};

// The target that a network must predict for each sample.
struct TargetInfo {
  Shape sample = {};         // () or (T); for numbers any
  DType dtype = DType::i64;  // int64: classes; float32: numbers
  int64_t classes = 0;       // of int64 targets, or of boxes
};

class Objective {
 public:
  virtual ~Objective() = default;
  // Objectives with equal keys compute the same.
  virtual std::string key() const = 0;
  // The number of targets that count, which may be 0: the divisor of the mean loss. Targets are on the CPU.
  virtual int64_t count(const Targets& targets) const = 0;
  // The sum of the losses of all targets, and a Top1 for each that can be right or wrong, both on the output's device.
  // A loss must be an op on values, not on the host's copy of them. Throws UsageError for targets of other shapes,
  // types or ranges.
  virtual LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const = 0;
  // Whether targets are right or wrong, so that training shows the share of right ones, its accuracy.
  virtual bool has_accuracy() const { return true; }
  // Adds to `sums` and `tallies` what metrics() needs besides the loss and correct targets. `output` may be on a GPU.
  virtual void judge(const Tensor& output, const Targets& targets, BatchScore& score) const;
  // Returns the metrics of a whole split, by name.
  virtual std::map<std::string, double> metrics(const BatchScore& total) const = 0;
};

class Task {
 public:
  Task(const CrossEntropyOptions& options = {});                                          // NOLINT: most tasks are this
  Task(std::shared_ptr<const Objective> objective) : objective_(std::move(objective)) {}  // NOLINT: a handle to it
  const Objective* operator->() const { return objective_.get(); }
  bool operator==(const Task& other) const { return objective_->key() == other->key(); }

 private:
  std::shared_ptr<const Objective> objective_;
};

// A task, and the number of outputs that it needs of the network for each sample or token.
struct MadeTask {
  Task task;
  int64_t outputs = 0;
};

// Makes the task that a configuration names; the kinds, and their settings:
//   classification   int64 targets: classes, or the next tokens; the default. `top_k` adds a metric; the options are no
//                    settings of the spec
//   regression       float32 targets: `loss` ("mse", "mae" or "huber" with `delta`), of all numbers of a sample
//   segmentation     int64 targets: a class for each pixel; classification with the metric `iou`
//   detection        float32 targets: boxes, each a row of a label and four numbers (nn/task_detection.cpp)
//   binary           targets from 0 to 1, the probability that each of a sample's labels applies: binary cross entropy
//                    of logits, with `positive_weight` (1) and `focal_gamma` (0)
//   ranking          float32 targets (C): 1 for one of a sample's C candidates, 0 for the others; the loss and settings
//                    of binary, with the metrics `hit_rate` and `ndcg` among the first `at` (10)
//   replaced_tokens  int64 targets: of the network electra (nn/task_replaced_tokens.cpp)
//   heads            float32 targets: several tasks, each for some of the numbers (nn/task_heads.cpp)
// `resolved`, if not null, receives `spec` with all defaults. Throws UsageError, which names place and key, for unknown
// kinds and settings, and if the targets do not suit the task.
MadeTask make_task(const Spec& spec, const CrossEntropyOptions& options, const TargetInfo& targets,
                   Spec* resolved = nullptr);

// The same for settings whose kind is set; the caller calls their finish().
MadeTask make_named_task(Settings& settings, const CrossEntropyOptions& options, const TargetInfo& targets);

// A kind of task that a program adds to those above. `make` reads its settings (the caller calls their finish()). The
// options are those of [loss], of which label_smoothing is 0.
struct TaskKind {
  std::string name;
  std::function<MadeTask(Settings&, const TargetInfo&, const CrossEntropyOptions&)> make;
};
// Call it at the start of main(). Throws UsageError if the name is taken.
void register_task(TaskKind kind);
std::vector<std::string> task_kinds();  // built in and registered

// The built-in kinds besides classification.
MadeTask make_regression(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);
MadeTask make_binary(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);
MadeTask make_segmentation(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);
MadeTask make_detection(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);
MadeTask make_ranking(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);
MadeTask make_heads(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);
MadeTask make_replaced_tokens(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options);

// Returns how many of these are Top1::correct; the tensor must be on the CPU, or undefined.
int64_t correct_of(const Tensor& top1);

}  // namespace elinvar
