#include "elastic/step/pipeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr double kBackward = 2;  // times a forward pass

using Order = std::vector<std::vector<PipelinePass>>;  // the passes of each stage

// Passes simulated on the stages of a pipeline. The order that results from any times is free of deadlocks: each pass
// needs only passes that end before it begins.
class Simulated {
 public:
  // If there is an order to keep, stages compute their passes in that one.
  Simulated(std::span<const PipelineRun> runs, std::span<const PassSeconds> seconds, int stages,
            std::span<const int> vranks, const Order* kept = nullptr)
      : runs_(runs),
        seconds_(seconds),
        vranks_(vranks),
        kept_(kept),
        free_(static_cast<size_t>(stages), 0),
        order_(static_cast<size_t>(stages)) {
    for (Passes* passes : {&forward_, &backward_}) passes->assign(runs.size(), {});
    while (const std::optional<Next> next = first()) {
      const PassSeconds& run = seconds[next->run];
      std::vector<double>& ended = (next->backward ? backward_ : forward_)[next->run];
      const auto stage = static_cast<size_t>(runs[next->run].stage);
      order_[stage].push_back({vranks[ended.size()], static_cast<int>(next->run), next->backward});
      ended.push_back(free_[stage] = next->begin + (next->backward ? run.backward : run.forward));
      ends_.emplace_back(free_[stage], order_[stage].back());
    }
  }

  Order take_order() { return std::move(order_); }
  std::vector<PipelinePass> by_end() const {
    auto ends = ends_;  // passes that give an input come before those that need it
    std::ranges::stable_sort(ends, {}, &std::pair<double, PipelinePass>::first);
    std::vector<PipelinePass> passes;
    for (const auto& [end, pass] : ends) passes.push_back(pass);
    return passes;
  }
  double end() const { return *std::max_element(free_.begin(), free_.end()); }

 private:
  using Passes = std::vector<std::vector<double>>;  // by run, the ends of the passes of the first virtual ranks
  struct Next {
    size_t run;
    bool backward;
    double begin;
    size_t which;  // of the virtual ranks
  };

  // A pass that is to begin earlier comes first; of those that can begin at once, forward passes, and older ones.
  // Forward passes keep the next stage at work; backward passes come in turn, because the number of rank gradients
  // between their passes is limited.
  static bool before(const Next& a, const Next& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.backward != b.backward) return b.backward;
    if (a.which != b.which) return a.which < b.which;
    return a.run > b.run;
  }

  std::optional<Next> first() const {
    std::optional<Next> first;
    for (size_t r = 0; r < runs_.size(); ++r)
      for (const bool backward : {true, false})
        if (const std::optional<double> ready = is_next(r, backward) ? ready_at(r, backward) : std::nullopt) {
          const double begin = std::max(*ready, free_[static_cast<size_t>(runs_[r].stage)]);
          const Next next{r, backward, begin, (backward ? backward_ : forward_)[r].size()};
          if (!first || before(next, *first)) first = next;
        }
    return first;
  }

  // Whether the order to keep allows the next pass through a run.
  bool is_next(size_t r, bool backward) const {
    if (kept_ == nullptr) return true;
    const auto stage = static_cast<size_t>(runs_[r].stage);
    const std::vector<PipelinePass>& kept = (*kept_)[stage];
    const size_t made = order_[stage].size();
    return made < kept.size() && kept[made].run == static_cast<int>(r) && kept[made].backward == backward;
  }

  // Returns how many rank gradients may be between their passes through a run: as many as there are runs from it on. If
  // a stage has several runs, every run but the last one may have one more, because other stages would wait while that
  // stage computes passes of its other run.
  size_t most_between(size_t r) const {
    const bool ahead = runs_.size() > free_.size() && r + 1 < runs_.size();
    return runs_.size() - r + (ahead ? 1 : 0);
  }

  // Returns when the inputs of the next pass through a run are there; null if that is not known yet.
  std::optional<double> ready_at(size_t r, bool backward) const {
    const size_t next = (backward ? backward_ : forward_)[r].size();
    if (next == vranks_.size()) return std::nullopt;
    const auto end_of = [&](const std::vector<double>& ended, double sent) {
      return next < ended.size() ? std::optional(ended[next] + sent) : std::nullopt;
    };
    if (backward) return r + 1 == runs_.size() ? end_of(forward_[r], 0) : end_of(backward_[r + 1], seconds_[r].sent);
    const size_t most = most_between(r);
    double ended = 0;
    if (next >= most) {
      if (backward_[r].size() <= next - most) return std::nullopt;
      ended = backward_[r][next - most];
    }
    const std::optional<double> input = r == 0 ? std::optional(0.0) : end_of(forward_[r - 1], seconds_[r - 1].sent);
    return input ? std::optional(std::max(*input, ended)) : std::nullopt;
  }

  std::span<const PipelineRun> runs_;
  std::span<const PassSeconds> seconds_;
  std::span<const int> vranks_;
  const Order* kept_;
  Passes forward_, backward_;
  std::vector<double> free_;  // when each stage ends its last pass
  Order order_;
  std::vector<std::pair<double, PipelinePass>> ends_;
};

// Stages are cut to take equally long, whatever their number of segments.
std::vector<PassSeconds> equal_seconds(std::span<const PipelineRun> runs, int stages) {
  std::vector<double> of_stage(static_cast<size_t>(stages), 0);
  for (const PipelineRun& run : runs) of_stage[static_cast<size_t>(run.stage)] += run.segments.size();
  std::vector<PassSeconds> seconds;
  for (const PipelineRun& run : runs) {
    const double part = run.segments.size() / of_stage[static_cast<size_t>(run.stage)];
    seconds.push_back({.forward = part, .backward = kBackward * part});
  }
  return seconds;
}

}  // namespace

std::vector<PipelineRun> runs_of(std::span<const std::vector<Interval>> stages) {
  std::vector<PipelineRun> runs;
  for (size_t s = 0; s < stages.size(); ++s)
    for (const Interval& segments : stages[s]) runs.push_back({static_cast<int>(s), segments});
  std::sort(runs.begin(), runs.end(), [](const auto& a, const auto& b) { return a.segments.begin < b.segments.begin; });
  return runs;
}

std::vector<std::vector<PipelinePass>> pipeline_order(std::span<const PipelineRun> runs, int stages,
                                                      std::span<const int> vranks) {
  return Simulated(runs, equal_seconds(runs, stages), stages, vranks).take_order();
}

std::vector<PipelinePass> passes_by_end(std::span<const PipelineRun> runs, int stages, std::span<const int> vranks) {
  return Simulated(runs, equal_seconds(runs, stages), stages, vranks).by_end();
}

double pipeline_seconds(std::span<const PipelineRun> runs, std::span<const PassSeconds> seconds, int stages,
                        int vranks) {
  std::vector<int> all(static_cast<size_t>(vranks));
  std::iota(all.begin(), all.end(), 0);
  const Order order = pipeline_order(runs, stages, all);
  return Simulated(runs, seconds, stages, all, &order).end();
}

}  // namespace elinvar
