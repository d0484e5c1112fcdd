#include "tools/training/pass_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "elastic/step/pipeline.h"

namespace elinvar {
namespace {

// Bytes of a member's passes through a run of segments.
class RunBytes {
 public:
  RunBytes(const NetworkNeeds& needs, const ReplicaPlace& place, const Interval& run, int zero)
      : besides_(static_cast<size_t>(run.size()), 0) {
    const double portion = 1.0 * place.shards.size() / needs.shards;
    for (int i = run.begin; i < run.end; ++i) {
      const SegmentNeeds& segment = needs.segments[static_cast<size_t>(i)];
      held_ += segment.held.of(portion);
      peaks_.push_back(held_ + segment.more.of(portion));
    }
    for (size_t p = 0; p < needs.memory.parameters.size(); ++p) {
      const NetworkPart part = needs.memory.parts->gradients[p];
      if (part.shard >= 0 && !contains({&place.shards, 1}, part.shard)) continue;
      const int last = part.segment, first = needs.first_readers.empty() ? last : needs.first_readers[p];
      const auto bytes = static_cast<double>(gradient_bytes(needs.memory, p));
      add_gradient(bytes, run, last, zero >= 2 ? first : last, zero);
      // In a pipeline, the gradient of the run below is a tensor of its own until it is added to that of the last
      // reader. Virtual shards make theirs one after another.
      const bool below = !contains({&run, 1}, last) && contains({&run, 1}, first);
      if (below) added_[first] = std::max(added_[first], bytes);
      if (zero == 3 && !needs.memory.tables.contains(static_cast<int>(p)))
        add_fetched(bytes, run, last, first, needs.memory.gpu.has_value());
    }
    for (const auto& [segment, bytes] : added_) besides(run, segment) += bytes;
  }

  double held() const { return held_; }            // between the two passes
  double gradients_left() const { return left_; }  // after the backward pass, until the rank gradient ends
  double forward() const { return peak({}); }      // at the peak of the pass
  double backward() const { return peak(besides_); }

 private:
  // The backward pass goes down. A gradient is made by the last segment that reads the parameter, and stays until the
  // rank gradient ends, or leaves while the segment below the first reader makes its own.
  void add_gradient(double bytes, const Interval& run, int last, int first, int zero) {
    if (!contains({&run, 1}, last)) return;
    for (int i = zero >= 2 ? std::max(run.begin, first - 1) : run.begin; i <= last; ++i) besides(run, i) += bytes;
    if (zero < 2 || first < run.begin) left_ += bytes;
  }

  // Parameters of a segment come while the one above runs: in messages, which are on the host, and in their place.
  void add_fetched(double bytes, const Interval& run, int last, int first, bool gpu) {
    for (int i = run.begin; i < run.end; ++i) {
      const auto reads = [&](int segment) {
        return contains({&run, 1}, segment) && (segment == last || segment == first);
      };
      if (reads(i - 1)) besides(run, i) += gpu ? bytes : 2 * bytes;
      else if (reads(i)) besides(run, i) += bytes;
    }
  }

  double& besides(const Interval& run, int segment) { return besides_[static_cast<size_t>(segment - run.begin)]; }

  double peak(const std::vector<double>& besides) const {
    double most = 0;
    for (size_t i = 0; i < peaks_.size(); ++i) most = std::max(most, peaks_[i] + (besides.empty() ? 0 : besides[i]));
    return most;
  }

  double held_ = 0, left_ = 0;
  std::vector<double> peaks_;    // in a pass through each segment, without gradients of parameters
  std::map<int, double> added_;  // by segment, what is added to a gradient of another run
  std::vector<double> besides_;  // .. and in the backward pass besides: gradients, and parameters that are fetched
};

}  // namespace

std::vector<int64_t> pass_bytes(const NetworkNeeds& needs, std::span<const ReplicaPlace> replica,
                                const ReplicaPlace& place, int ranks, int zero) {
  const auto count = static_cast<size_t>(std::max(ranks, 1));
  if (place.segments.empty()) {
    const RunBytes all(needs, place, {0, static_cast<int>(needs.segments.size())}, zero);
    return std::vector<int64_t>(count, std::llround(all.backward()));
  }
  std::map<int, std::vector<Interval>> stages;
  for (const ReplicaPlace& member : replica)
    if (member.replica == place.replica) stages[member.stage] = member.segments;
  std::vector<std::vector<Interval>> segments;
  for (const auto& [stage, own] : stages) segments.push_back(own);
  const std::vector<PipelineRun> runs = runs_of(segments);
  std::map<int, RunBytes> of_runs;
  for (size_t r = 0; r < runs.size(); ++r)
    if (runs[r].stage == place.stage)
      of_runs.emplace(static_cast<int>(r), RunBytes(needs, place, runs[r].segments, zero));
  std::vector<int> vranks(count);
  std::iota(vranks.begin(), vranks.end(), 0);
  std::vector<double> most(count, 0);
  std::map<int, double> made;      // by virtual rank, gradients of those that have begun their backward passes
  std::map<int, size_t> backward;  // .. and the runs that they have passed through
  double between = 0;              // activations between passes
  size_t ended = 0;
  const std::vector<std::vector<PipelinePass>> order = pipeline_order(runs, static_cast<int>(segments.size()), vranks);
  for (const PipelinePass& pass : order[static_cast<size_t>(place.stage)]) {
    const RunBytes& run = of_runs.at(pass.run);
    if (pass.backward) between -= run.held();
    double now = between + (pass.backward ? run.backward() : run.forward());
    for (const auto& [vrank, bytes] : made) now += bytes;
    most[ended] = std::max(most[ended], now);
    if (!pass.backward) {
      between += run.held();
      continue;
    }
    made[pass.vrank] += run.gradients_left();
    if (++backward[pass.vrank] < of_runs.size()) continue;
    made.erase(pass.vrank);
    ended = std::min(ended + 1, count - 1);
  }
  std::vector<int64_t> bytes;
  for (const double each : most) bytes.push_back(std::llround(each));
  return bytes;
}

}  // namespace elinvar
