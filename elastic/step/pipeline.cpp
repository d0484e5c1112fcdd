#include "elastic/step/pipeline.h"

#include <algorithm>
#include <optional>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr double kBackward = 2;  // times a forward pass

// Passes of equal segments, simulated on stages of equal speed. The order that results from any times is free of
// deadlocks: each pass needs only passes that end before it begins.
class Simulated {
 public:
  Simulated(std::span<const PipelineRun> runs, int stages, std::span<const int> vranks)
      : runs_(runs), vranks_(vranks), free_(static_cast<size_t>(stages), 0), order_(static_cast<size_t>(stages)) {
    for (Passes* passes : {&forward_, &backward_}) passes->assign(runs.size(), {});
  }

  std::vector<std::vector<PipelinePass>> run() {
    while (const std::optional<Next> next = first()) {
      const PipelineRun& run = runs_[next->run];
      const double seconds = run.segments.size() * (next->backward ? kBackward : 1);
      std::vector<double>& ended = (next->backward ? backward_ : forward_)[next->run];
      const auto stage = static_cast<size_t>(run.stage);
      order_[stage].push_back({vranks_[ended.size()], static_cast<int>(next->run), next->backward});
      ended.push_back(free_[stage] = next->begin + seconds);
    }
    return std::move(order_);
  }

 private:
  using Passes = std::vector<std::vector<double>>;  // by run, the ends of the passes of the first virtual ranks
  struct Next {
    size_t run;
    bool backward;
    double begin;
    size_t which;  // of the virtual ranks
  };

  // A pass that is to begin earlier comes first; of those that can begin at once, backward passes, and older ones.
  static bool before(const Next& a, const Next& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    if (a.backward != b.backward) return a.backward;
    if (a.which != b.which) return a.which < b.which;
    return a.run > b.run;
  }

  std::optional<Next> first() const {
    std::optional<Next> first;
    for (size_t r = 0; r < runs_.size(); ++r)
      for (const bool backward : {true, false})
        if (const std::optional<double> ready = ready_at(r, backward)) {
          const double begin = std::max(*ready, free_[static_cast<size_t>(runs_[r].stage)]);
          const Next next{r, backward, begin, (backward ? backward_ : forward_)[r].size()};
          if (!first || before(next, *first)) first = next;
        }
    return first;
  }

  // Returns when the inputs of the next pass through a run are there; null if that is not known yet.
  std::optional<double> ready_at(size_t r, bool backward) const {
    const size_t next = (backward ? backward_ : forward_)[r].size();
    if (next == vranks_.size()) return std::nullopt;
    const auto end_of = [&](const std::vector<double>& ended) {
      return next < ended.size() ? std::optional(ended[next]) : std::nullopt;
    };
    if (backward) return r + 1 == runs_.size() ? end_of(forward_[r]) : end_of(backward_[r + 1]);
    // As many as there are runs from here on may be between their passes.
    const size_t most = runs_.size() - r;
    double ended = 0;
    if (next >= most) {
      if (backward_[r].size() <= next - most) return std::nullopt;
      ended = backward_[r][next - most];
    }
    const std::optional<double> input = r == 0 ? std::optional(0.0) : end_of(forward_[r - 1]);
    return input ? std::optional(std::max(*input, ended)) : std::nullopt;
  }

  std::span<const PipelineRun> runs_;
  std::span<const int> vranks_;
  Passes forward_, backward_;
  std::vector<double> free_;  // when each stage ends its last pass
  std::vector<std::vector<PipelinePass>> order_;
};

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
  return Simulated(runs, stages, vranks).run();
}

}  // namespace elinvar
