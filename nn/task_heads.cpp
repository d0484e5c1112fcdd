// Several tasks of one network, its heads: targets (N, K) float32, and outputs (N, ..) whose last dimension is divided
// among the heads in order, as is K. A head is a task of any other kind, with these settings besides its own:
//   targets   1        how many of the K numbers are its targets
//   classes   required  of "classification": its target is the number of a class, from 0 to before this one
//   weight    1        what its loss is multiplied by
//   name      the kind  what its metrics begin with
// The loss of a sample is the sum over heads of weight times the losses of all targets of the head, and the mean is
// over samples. Metrics are those of each head, and its own mean loss without the weight: <name>_loss, <name>_accuracy,
// ...
#include <algorithm>
#include <cmath>
#include <set>

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/shape.h"
#include "nn/micro_batch.h"
#include "nn/task.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"

namespace elinvar {
namespace {

struct Head {
  Task task;
  std::string name;
  double weight = 1;
  int64_t targets = 1, first_target = 0;
  int64_t outputs = 0, first_output = 0;
  int64_t classes = 0;  // 0: targets are numbers
};

class Heads final : public Objective {
 public:
  explicit Heads(std::vector<Head> heads) : heads_(std::move(heads)) {}

  std::string key() const override {
    std::string key = "heads";
    for (const Head& h : heads_)
      key += fmt::format(" [{} {} {} {} {}]", h.name, h.weight, h.targets, h.classes, h.task->key());
    return key;
  }
  int64_t count(const Targets& targets) const override { return targets.own.dim(0); }
  bool has_accuracy() const override { return false; }

  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    const Var x = widened(joined(output));
    check_shapes(x.shape(), targets.own);
    Var total;
    for (const Head& h : heads_) {
      Var own = h.task->loss(outputs_of(h, x), targets_of(h, targets.own)).loss;
      if (h.weight != 1) own = own * h.weight;
      total = total.defined() ? total + own : own;
    }
    return {total, {}};
  }

  // Sums and tallies of head h of H are at i * H + h. Its loss is its first sum, and its numbers of targets and of
  // correct ones are its first tallies.
  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    const size_t count = heads_.size();
    for (size_t i = 0; i < count; ++i) {
      const Head& h = heads_[i];
      const BatchScore own = evaluate(outputs_of(h, Var(output)).parts[0].value(), targets_of(h, targets.own), h.task);
      score.sums.resize(std::max(score.sums.size(), (1 + own.sums.size()) * count));
      score.sums[i] += own.loss_sum;
      for (size_t k = 0; k < own.sums.size(); ++k) score.sums[(1 + k) * count + i] += own.sums[k];
      const auto tally = [&](int64_t place) -> int64_t& {
        return score.tallies[place * static_cast<int64_t>(count) + static_cast<int64_t>(i)];
      };
      tally(0) += own.count;
      tally(1) += own.correct;
      for (const auto& [index, number] : own.tallies) tally(2 + index) += number;
    }
  }

  std::map<std::string, double> metrics(const BatchScore& total) const override {
    std::map<std::string, double> all;
    const auto count = static_cast<int64_t>(heads_.size());
    for (int64_t i = 0; i < count; ++i) {
      const Head& h = heads_[static_cast<size_t>(i)];
      BatchScore own{.loss_sum = total.sums.at(static_cast<size_t>(i)), .samples = total.samples};
      for (auto k = static_cast<size_t>(count + i); k < total.sums.size(); k += heads_.size())
        own.sums.push_back(total.sums[k]);
      for (const auto& [index, number] : total.tallies) {
        if (index % count != i) continue;
        if (const int64_t place = index / count; place == 0) own.count = number;
        else if (place == 1) own.correct = number;
        else own.tallies[place - 2] = number;
      }
      all[h.name + "_loss"] = own.loss_sum / static_cast<double>(own.count);
      for (const auto& [name, value] : h.task->metrics(own)) all[h.name + "_" + name] = value;
    }
    return all;
  }

 private:
  void check_shapes(const Shape& outputs, const Tensor& targets) const {
    const Head& last = heads_.back();
    const int64_t width = last.first_target + last.targets;
    check(targets.dtype() == DType::f32 && targets.numel() == outputs[0] * width && targets.dim(0) == outputs[0] &&
              outputs.ndim() == 2 && outputs[1] == last.first_output + last.outputs,
          "[heads] outputs (N, {}) and float32 targets (N, {}) expected, got {} and {} {}",
          last.first_output + last.outputs, width, to_string(outputs), name_of(targets.dtype()),
          to_string(targets.shape()));
  }

  static ShardedLogits outputs_of(const Head& h, const Var& x) {
    return {.parts = {slice(x, -1, h.first_output, h.first_output + h.outputs)}, .classes = h.outputs};
  }

  // The targets of a head: (N), or (N, targets) if there are several.
  static Targets targets_of(const Head& h, const Tensor& all) {
    return derived({all}, [h](std::span<const Tensor> from) { return std::vector{own_targets(h, from[0])}; })[0];
  }
  static Tensor own_targets(const Head& h, const Tensor& given) {
    const Tensor all = given.to(Device{}).to_contiguous();
    const int64_t n = all.dim(0), width = n > 0 ? all.numel() / n : 0;
    Tensor own =
        Tensor::empty(h.targets == 1 ? Shape{n} : Shape{n, h.targets}, h.classes > 0 ? DType::i64 : DType::f32);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < h.targets; ++k) {
        const float target = all.data<float>()[i * width + h.first_target + k];
        if (h.classes == 0) {
          own.data<float>()[i * h.targets + k] = target;
          continue;
        }
        check(target >= 0 && target < static_cast<float>(h.classes) && target == std::floor(target),
              "[heads] target {} of sample {} for head '{}' is no class from 0 to {}", target, i, h.name,
              h.classes - 1);
        own.data<int64_t>()[i] = static_cast<int64_t>(target);
      }
    return own;
  }

  std::vector<Head> heads_;
};

}  // namespace

MadeTask make_heads(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions& options) {
  settings.require(targets.dtype == DType::f32 && targets.sample.ndim() <= 1, "kind",
                   "= 'heads' divides numbers, (K) float32, but the data have {} of shape {} a sample",
                   name_of(targets.dtype), to_string(targets.sample));
  settings.require(settings.has_list("head"), "head", "is missing: 'heads' needs a list of [[task.head]]");
  std::vector<Head> heads;
  std::set<std::string> names;
  int64_t target = 0, output = 0;
  for (Settings& s : settings.list("head")) {
    Head h;
    s.require(s.kind() != "heads", "kind", "= 'heads' cannot be a head");
    h.name = s.text("name", s.kind());
    s.require(names.insert(h.name).second, "name", "= '{}' is what a head before it is called", h.name);
    h.weight = s.real("weight", 1.0, 0.0, 1e6);
    h.targets = s.integer("targets", 1, 1, 1024);
    h.first_target = target;
    TargetInfo own{.sample = h.targets == 1 ? Shape{} : Shape{h.targets}, .dtype = DType::f32};
    CrossEntropyOptions of_head = options;
    if (s.kind() == "classification") {
      s.require(h.targets == 1, "targets", "= {}: a class is one number", h.targets);
      h.classes = s.integer("classes", std::nullopt, 2);
      own = {.sample = {}, .dtype = DType::i64, .classes = h.classes};
    } else {
      of_head.label_smoothing = 0;
    }
    MadeTask made = make_named_task(s, of_head, own);
    s.finish();
    h.task = std::move(made.task);
    h.outputs = made.outputs;
    h.first_output = output;
    target += h.targets;
    output += h.outputs;
    heads.push_back(std::move(h));
  }
  settings.require(target == targets.sample.numel(), "head", "has heads for {} targets, but the data have {}", target,
                   targets.sample.numel());
  return {Task(std::make_shared<Heads>(std::move(heads))), output};
}

}  // namespace elinvar
