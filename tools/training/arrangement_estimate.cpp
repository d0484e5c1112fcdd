#include "tools/training/arrangement_estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "elastic/step/pipeline.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

constexpr double kEqual = 1.001;  // times the shortest time: as fast

// Returns the seconds in which a member of a stage of `members` exchanges values. Each sends its part of the elements
// to the one that adds them up, and gets the sums; two send all to each other, in one message.
double seconds_of(const ShardSums& sums, int members, const Cluster& cluster) {
  if (members == 1) return 0;
  const double messages = members == 2 ? 1 : 2, part = 2.0 * (members - 1) / members;
  return sums.count * messages * cluster.latency + part * static_cast<double>(sums.bytes) / cluster.bandwidth;
}

double bytes_of(const Shape& shape) { return static_cast<double>(shape.numel()) * sizeof(float); }

bool has(const ReplicaPlace& place, size_t segment) {
  return place.segments.empty() || contains(place.segments, static_cast<int>(segment));
}

// The model replicas of an arrangement, and the time of their passes. Neither depends on how the state is divided.
class Replicas {
 public:
  Replicas(const NetworkNeeds& needs, int virtual_ranks, const Cluster& cluster, int tp, int pp)
      : needs_(needs), cluster_(cluster), tp_(tp), pp_(pp) {
    const double portion = std::ceil(1.0 * needs.shards / tp) / needs.shards;
    SegmentCosts costs{.homes = needs.homes};
    for (const SegmentNeeds& segment : needs.segments)
      costs.seconds.push_back(segment.forward.of(portion) + segment.backward.of(portion));
    const ReplicaLimits limits{.shards = needs.shards, .tp = tp, .pp = pp, .segments = std::move(costs)};
    places_ = deal_replicas(limits, std::vector<double>(static_cast<size_t>(cluster.workers), 1.0));
    count_ = places_.back().replica + 1;
    const auto shares =
        shares_of_members(places_, assign(virtual_ranks, std::vector<double>(static_cast<size_t>(count_), 1.0)));
    for (const std::vector<Interval>& share : shares) ranks_.push_back(total(share));
    most_ = *std::max_element(ranks_.begin(), ranks_.end());
    predict_passes();
  }

  int count() const { return count_; }
  int most_ranks() const { return most_; }
  const StepTime& passes() const { return passes_; }
  double last_backward() const { return last_backward_; }  // seconds of the busiest stage's

  std::vector<WorkerLoad> loads(int zero) const {
    std::vector<WorkerLoad> loads;
    std::map<std::tuple<int, int, int>, int64_t> known;
    for (size_t w = 0; w < places_.size(); ++w) {
      const ReplicaPlace& place = places_[w];
      const int under_way = std::clamp(ranks_[w], 1, pp_ - place.stage);
      const auto [bytes, fresh] = known.try_emplace({place.stage, place.shards.begin, under_way});
      if (fresh) bytes->second = rank_gradient_bytes(needs_, place, under_way, zero);
      loads.push_back({.virtual_ranks = ranks_[w], .place = place, .rank_gradient = bytes->second});
    }
    return loads;
  }

  // Returns the bytes of the parameters that a member's passes read, and of the gradients that it contributes: the
  // members of a stage share those of what is not cut. The most of any member.
  double read() const { return most_bytes(1); }
  double contributed() const { return most_bytes(tp_); }

 private:
  double most_bytes(int sharing) const {
    double most = 0;
    for (int w = 0; w < tp_ * pp_; ++w) {
      const ReplicaPlace& place = places_[static_cast<size_t>(w)];
      double bytes = 0;
      for (size_t p = 0; p < needs_.memory.parameters.size(); ++p) {
        const NetworkPart part = needs_.memory.parts->gradients[p];
        if (!has(place, static_cast<size_t>(part.segment))) continue;
        if (part.shard < 0) bytes += bytes_of(needs_.memory.parameters[p]) / sharing;
        else if (contains({&place.shards, 1}, part.shard)) bytes += bytes_of(needs_.memory.parameters[p]);
      }
      most = std::max(most, bytes);
    }
    return most;
  }

  // The most that a member of the stage computes.
  double portion(int stage) const {
    int shards = 0;
    for (int w = 0; w < tp_ * pp_; ++w)
      if (const ReplicaPlace& place = places_[static_cast<size_t>(w)]; place.stage == stage)
        shards = std::max(shards, place.shards.size());
    return 1.0 * shards / needs_.shards;
  }

  void predict_passes() {
    std::vector<std::vector<Interval>> stages;
    for (int s = 0; s < pp_; ++s) stages.push_back(places_[static_cast<size_t>(s * tp_)].segments);
    if (pp_ == 1) stages[0] = {{0, static_cast<int>(needs_.segments.size())}};
    const std::vector<PipelineRun> runs = runs_of(stages);
    std::vector<PassSeconds> seconds;
    std::vector<double> computing(stages.size(), 0), within(stages.size(), 0), backward(stages.size(), 0);
    for (const PipelineRun& run : runs) {
      const auto stage = static_cast<size_t>(run.stage);
      PassSeconds& of_run = seconds.emplace_back();
      for (int i = run.segments.begin; i < run.segments.end; ++i) {
        const SegmentNeeds& segment = needs_.segments[static_cast<size_t>(i)];
        const double forward = segment.forward.of(portion(run.stage)), back = segment.backward.of(portion(run.stage));
        const double waits[] = {seconds_of(segment.forward_sums, tp_, cluster_),
                                seconds_of(segment.backward_sums, tp_, cluster_)};
        of_run.forward += forward + waits[0];
        of_run.backward += back + waits[1];
        computing[stage] += forward + back;
        within[stage] += waits[0] + waits[1];
        backward[stage] += back + waits[1];
      }
      if (run.segments.end < static_cast<int>(needs_.segments.size())) {
        const auto bytes = static_cast<double>(needs_.segments[static_cast<size_t>(run.segments.end - 1)].value);
        of_run.sent = cluster_.latency + bytes / cluster_.bandwidth;
      }
    }
    size_t busiest = 0;
    for (size_t s = 1; s < stages.size(); ++s)
      if (computing[s] + within[s] > computing[busiest] + within[busiest]) busiest = s;
    passes_.computing = most_ * computing[busiest];
    passes_.within = most_ * within[busiest];
    last_backward_ = backward[busiest];
    if (pp_ > 1)
      passes_.bubble = std::max(0.0, pipeline_seconds(runs, seconds, pp_, most_) - passes_.computing - passes_.within);
  }

  const NetworkNeeds& needs_;
  const Cluster& cluster_;
  int tp_, pp_, count_ = 1, most_ = 1;
  std::vector<ReplicaPlace> places_;
  std::vector<int> ranks_;  // of each worker
  StepTime passes_;
  double last_backward_ = 0;
};

// Returns the needs as workers of the arrangement see them: the parts of the network that they distinguish.
MemoryNeeds memory_of(const NetworkNeeds& needs, const Arrangement& arrangement) {
  MemoryNeeds memory = needs.memory;
  if (arrangement.replica() == 1 && arrangement.zero < 3) memory.parts = std::nullopt;
  else if (arrangement.pp == 1 && arrangement.zero < 3)
    for (NetworkPart& part : memory.parts->gradients) part.segment = 0;
  return memory;
}

// Adds what follows the passes to their time. `all`: the bytes of all parameters.
StepTime time_of(const NetworkNeeds& needs, const Cluster& cluster, const Arrangement& arrangement,
                 const Replicas& replicas, double all) {
  StepTime time = replicas.passes();
  const double workers = cluster.workers, ranks = replicas.most_ranks(), contributed = replicas.contributed();
  const bool sharded = arrangement.zero > 0, leaves = arrangement.zero >= 2;
  const double kept = sharded ? std::min<double>(arrangement.copies, workers) / workers : 1;  // a worker's part
  // Owners of buckets are members of a replica that contribute to them; with ZeRO they may be any.
  const double owners = sharded ? workers : replicas.count();
  const double reduced = (leaves ? ranks : 1) * contributed * (owners - 1) / owners;
  const double sums = all * (sharded ? kept - 1 / workers : 1 - 1 / workers);
  const double fetched = arrangement.zero == 3 ? 2 * ranks * replicas.read() * (1 - kept) : 0;
  const double values = arrangement.zero == 3 ? 0 : all * (1 - kept);
  // Gradients leave bucket by bucket while the backward pass runs, and their sums return.
  const double meanwhile = leaves ? time.computing : replicas.last_backward();
  if (workers > 1)
    time.exchange = std::max(0.0, (reduced + sums + fetched) / cluster.bandwidth - meanwhile) +
                    values / cluster.bandwidth +
                    (sharded ? 5 : 4) * cluster.latency;  // gradients, sums, parts of the trailer, trailer, values
  // A member adds up its own rank gradients, and an owner those that it gets.
  const double own = leaves ? 0 : (ranks - 1) * contributed / all;
  const double of_all = ((leaves ? ranks : 1) * replicas.count() - 1) / workers;
  time.update = needs.update * kept + needs.sum * (own + of_all) + needs.digest / workers;
  return time;
}

bool simpler(const ArrangementEstimate& a, const ArrangementEstimate& b) {
  const auto rank = [](const ArrangementEstimate& e) {
    const Arrangement& x = e.arrangement;
    return std::tuple(x.replica(), x.pp, x.zero, -x.copies);
  };
  return rank(a) < rank(b);
}

// Ties are those with the fastest of a run of estimates, so that the order is one.
void sort(std::vector<ArrangementEstimate>& estimates) {
  std::ranges::sort(estimates, [](const auto& a, const auto& b) {
    return std::tuple(!a.fits, a.time.all()) < std::tuple(!b.fits, b.time.all());
  });
  for (auto first = estimates.begin(); first != estimates.end();) {
    const auto end = std::find_if(first, estimates.end(), [&](const ArrangementEstimate& e) {
      return e.fits != first->fits || e.time.all() > kEqual * first->time.all();
    });
    std::sort(first, end, simpler);
    first = end;
  }
}

}  // namespace

std::string ArrangementEstimate::text() const {
  std::string text = fmt::format("dp={}", dp);
  if (arrangement.tp > 1) text += fmt::format(",tp={}", arrangement.tp);
  if (arrangement.pp > 1) text += fmt::format(",pp={}", arrangement.pp);
  if (arrangement.zero > 0) text += fmt::format(",zero={} --copies {}", arrangement.zero, arrangement.copies);
  return text;
}

std::string ArrangementEstimate::bound() const {
  const std::pair<double, const char*> parts[] = {{time.computing, "computing"},
                                                  {time.within, "values within replicas"},
                                                  {time.bubble, "the pipeline's bubble"},
                                                  {time.exchange, "the exchange of gradients"},
                                                  {time.update, "the update"}};
  return std::ranges::max_element(parts, {}, &std::pair<double, const char*>::first)->second;
}

int64_t rank_gradient_bytes(const NetworkNeeds& needs, const ReplicaPlace& place, int under_way, int zero) {
  const double portion = 1.0 * place.shards.size() / needs.shards;
  const size_t segments = needs.segments.size();
  std::vector<double> parameters(segments, 0);
  for (size_t p = 0; p < needs.memory.parameters.size(); ++p) {
    const NetworkPart part = needs.memory.parts->gradients[p];
    if (part.shard < 0 || contains({&place.shards, 1}, part.shard))
      parameters[static_cast<size_t>(part.segment)] += bytes_of(needs.memory.parameters[p]);
  }
  // The backward pass goes down, and what it is past is not held any more. Gradients stay until the end, or are a
  // segment's, beside its parameters and those of the next one.
  double held = 0, peak = 0, made = 0, before = 0;
  for (size_t i = 0; i < segments; ++i)
    if (has(place, i)) made += parameters[i];
  for (size_t i = 0; i < segments; ++i) {
    if (!has(place, i)) continue;
    held += needs.segments[i].held.of(portion);
    const double besides = zero == 3 ? 2 * parameters[i] + before : made;
    peak = std::max(peak, held + needs.segments[i].more.of(portion) + besides);
    made -= parameters[i];
    before = parameters[i];
  }
  return std::llround((under_way - 1) * held + peak);
}

std::vector<ArrangementEstimate> estimate_arrangements(const NetworkNeeds& needs, int virtual_ranks,
                                                       const Cluster& cluster) {
  check(cluster.workers >= 1 && cluster.workers <= kMostParallel && cluster.bandwidth > 0 && cluster.latency >= 0,
        "[arrangements] {} workers, {} bytes a second, {} s a message", cluster.workers, cluster.bandwidth,
        cluster.latency);
  invariant(needs.memory.parts.has_value(), "the part of each parameter is known");
  double all = 0;
  for (const Shape& shape : needs.memory.parameters) all += bytes_of(shape);
  const int most = most_stages({std::vector<double>(needs.segments.size(), 1.0), needs.homes});
  std::vector<ArrangementEstimate> estimates;
  for (int tp = 1; tp <= std::min(needs.shards, cluster.workers); ++tp)
    for (int pp = 1; pp <= std::min(most, cluster.workers / tp); ++pp) {
      if (cluster.workers % (tp * pp) != 0) continue;
      const Replicas replicas(needs, virtual_ranks, cluster, tp, pp);
      for (int zero = 0; zero <= (cluster.workers > 1 ? needs.most_zero : 0); ++zero)
        for (const int copies : zero == 0 ? std::vector{Arrangement().copies} : cluster.copies) {
          const Arrangement arrangement{.zero = zero, .copies = copies, .tp = tp, .pp = pp};
          ArrangementEstimate& estimate =
              estimates.emplace_back(ArrangementEstimate{.arrangement = arrangement,
                                                         .dp = replicas.count(),
                                                         .time = time_of(needs, cluster, arrangement, replicas, all)});
          for (const MemoryForecast& w :
               forecast_memory(memory_of(needs, arrangement), arrangement, replicas.loads(zero)))
            estimate.peak = std::max(estimate.peak, w.peak);
          estimate.fits = cluster.memory == 0 || estimate.peak <= cluster.memory;
        }
    }
  sort(estimates);
  return estimates;
}

}  // namespace elinvar
