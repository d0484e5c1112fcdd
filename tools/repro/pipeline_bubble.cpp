#include "tools/repro/pipeline_bubble.h"

#include <algorithm>
#include <limits>
#include <set>

#include "elastic/step/pipeline.h"

namespace elinvar {
namespace {

// A stage of a model replica: neighbours in the record.
struct PipelineStage {
  std::vector<const GenerationMember*> members;
  const ReplicaPlace& place() const { return members.front()->place; }
};
using Pipeline = std::vector<PipelineStage>;

std::vector<Pipeline> pipelines_of(const Generation& generation) {
  std::vector<Pipeline> pipelines;
  for (const GenerationMember& m : generation.members) {
    if (static_cast<size_t>(m.place.replica) == pipelines.size()) pipelines.emplace_back();
    Pipeline& pipeline = pipelines.back();
    if (static_cast<size_t>(m.place.stage) == pipeline.size()) pipeline.emplace_back();
    pipeline.back().members.push_back(&m);
  }
  return pipelines;
}

std::vector<PipelineRun> runs_of_stages(const Pipeline& pipeline) {
  std::vector<std::vector<Interval>> segments;
  for (const PipelineStage& stage : pipeline) segments.push_back(stage.place().segments);
  return runs_of(segments);
}

// The part of the members' time that the schedule leaves without a pass.
double bubble_of(const Pipeline& pipeline, std::span<const PipelineRun> runs, std::span<const PassSeconds> seconds,
                 int vranks) {
  const double length = pipeline_seconds(runs, seconds, static_cast<int>(pipeline.size()), vranks);
  double busy = 0, members = 0;
  for (size_t r = 0; r < runs.size(); ++r)
    busy += vranks * (seconds[r].forward + seconds[r].backward) *
            static_cast<double>(pipeline[static_cast<size_t>(runs[r].stage)].members.size());
  for (const PipelineStage& stage : pipeline) members += static_cast<double>(stage.members.size());
  return length > 0 ? 1 - busy / (members * length) : 0;
}

double predicted_bubble(const Pipeline& pipeline, std::span<const PipelineRun> runs, std::span<const double> segments,
                        int shards, int vranks) {
  const bool known = static_cast<int>(segments.size()) == runs.back().segments.end;
  std::vector<PassSeconds> seconds;
  for (const PipelineRun& run : runs) {
    const PipelineStage& stage = pipeline[static_cast<size_t>(run.stage)];
    double both = stage.place().work * run.segments.size() / total(stage.place().segments);
    if (known) {
      both = 0;
      for (int s = run.segments.begin; s < run.segments.end; ++s) both += segments[static_cast<size_t>(s)];
    }
    int most = 0;  // virtual shards of a member, for which the others of the stage wait
    for (const GenerationMember* m : stage.members) most = std::max(most, m->place.shards.size());
    both *= 1.0 * most / shards;
    seconds.push_back({.forward = both / 3, .backward = 2 * both / 3});
  }
  return bubble_of(pipeline, runs, seconds, vranks);
}

// The passes of all virtual ranks through each run on the first member of its stage.
struct MadePasses {
  std::vector<std::map<int, PassSpan>> forward, backward;  // by run and virtual rank

  explicit MadePasses(size_t runs) : forward(runs), backward(runs) {}
  void add(int run, const PassSpan& pass) {
    (pass.backward ? backward : forward)[static_cast<size_t>(run)].emplace(pass.vrank, pass);
  }
  // The least seconds from the end of a pass to the beginning of the one that needs what it gives. Less than 0 if a
  // pass sends it before it ends.
  double sent(size_t run) const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [vrank, pass] : forward[run]) least = std::min(least, forward[run + 1].at(vrank).begin - pass.end);
    for (const auto& [vrank, pass] : backward[run])
      least = std::min(least, pass.begin - backward[run + 1].at(vrank).end);
    return least;
  }
};

// The schedule with the mean seconds of each run's passes on the member of the stage for which they take longest, and
// the least time in which values travel. Null if some member has not computed the passes of the schedule in its order.
std::optional<double> scheduled_bubble(const Pipeline& pipeline, std::span<const PipelineRun> runs,
                                       const std::map<int, std::vector<PassSpan>>& passes,
                                       const std::vector<int>& vranks) {
  const auto order = pipeline_order(runs, static_cast<int>(pipeline.size()), vranks);
  std::vector<PassSeconds> seconds(runs.size());
  MadePasses all(runs.size());
  for (size_t s = 0; s < pipeline.size(); ++s)
    for (const GenerationMember* m : pipeline[s].members) {
      const std::vector<PassSpan>& made = passes.at(m->id);
      if (made.size() != order[s].size()) return std::nullopt;
      std::vector<PassSeconds> mean(runs.size());
      for (size_t i = 0; i < made.size(); ++i) {
        if (made[i].vrank != order[s][i].vrank || made[i].backward != order[s][i].backward) return std::nullopt;
        if (m == pipeline[s].members.front()) all.add(order[s][i].run, made[i]);
        PassSeconds& run = mean[static_cast<size_t>(order[s][i].run)];
        (made[i].backward ? run.backward : run.forward) +=
            (made[i].end - made[i].begin) / static_cast<double>(vranks.size());
      }
      for (size_t r = 0; r < runs.size(); ++r)
        if (mean[r].forward + mean[r].backward > seconds[r].forward + seconds[r].backward) seconds[r] = mean[r];
    }
  for (size_t r = 0; r + 1 < runs.size(); ++r) seconds[r].sent = all.sent(r);
  return bubble_of(pipeline, runs, seconds, static_cast<int>(vranks.size()));
}

}  // namespace

std::vector<PipelineBubble> pipeline_bubbles(const Generation& generation, std::span<const double> seconds,
                                             const std::map<int, std::vector<PassSpan>>& passes) {
  std::vector<PipelineBubble> bubbles;
  if (generation.shards == 0) return bubbles;
  for (const Pipeline& pipeline : pipelines_of(generation)) {
    if (pipeline.size() < 2) continue;
    double busy = 0, members = 0;
    std::optional<double> begin, end;
    std::set<int> vranks;
    bool whole = true;
    for (const PipelineStage& stage : pipeline)
      for (const GenerationMember* m : stage.members) {
        const auto made = passes.find(m->id);
        whole = whole && made != passes.end() && !made->second.empty();
        if (!whole) break;
        ++members;
        for (const PassSpan& pass : made->second) {
          busy += pass.end - pass.begin;
          begin = begin ? std::min(*begin, pass.begin) : pass.begin;
          end = end ? std::max(*end, pass.end) : pass.end;
          vranks.insert(pass.vrank);
        }
      }
    if (!whole || *end <= *begin) continue;
    const std::vector<PipelineRun> runs = runs_of_stages(pipeline);
    const std::vector<int> ascending(vranks.begin(), vranks.end());
    bubbles.push_back(
        {.replica = pipeline.front().place().replica,
         .measured = 1 - busy / (members * (*end - *begin)),
         .predicted = predicted_bubble(pipeline, runs, seconds, generation.shards, static_cast<int>(ascending.size())),
         .scheduled = scheduled_bubble(pipeline, runs, passes, ascending)});
  }
  return bubbles;
}

}  // namespace elinvar
