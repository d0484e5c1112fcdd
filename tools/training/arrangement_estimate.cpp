#include "tools/training/arrangement_estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "elastic/protocol/member.h"
#include "elastic/step/pipeline.h"
#include "tensor/base/check.h"
#include "tools/training/pass_memory.h"

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

double gradient_of(const NetworkNeeds& needs, size_t parameter) {
  return static_cast<double>(gradient_bytes(needs.memory, parameter));
}

bool is_table(const NetworkNeeds& needs, size_t parameter) {
  return needs.memory.tables.contains(static_cast<int>(parameter));
}

// The passes of a stage through each of its segments, in the order of forward passes: seconds, with waits for values of
// other virtual shards.
struct StagePasses {
  std::vector<int> segments;
  std::vector<double> forward, backward;
  double computing = 0, within = 0;  // of all of them
  double all() const { return computing + within; }
};

// Model replicas of one size, and the time of the passes of the one with most virtual ranks.
class ReplicaPasses {
 public:
  // `members`: the places of the replica's members.
  ReplicaPasses(const NetworkNeeds& needs, const Cluster& cluster, std::span<const ReplicaPlace> members, int ranks)
      : needs_(needs), cluster_(cluster), ranks_(ranks) {
    for (const ReplicaPlace& place : members) {
      if (static_cast<size_t>(place.stage) == firsts_.size()) {
        firsts_.push_back(place);
        sizes_.push_back(0);
        shards_.push_back(0);
      }
      ++sizes_.back();
      shards_.back() = std::max(shards_.back(), place.shards.size());
    }
    predict();
  }

  int ranks() const { return ranks_; }
  const StepTime& time() const { return time_; }
  const std::vector<StagePasses>& stages() const { return stages_; }
  const ReplicaPlace& first(size_t stage) const { return firsts_[stage]; }
  int members(size_t stage) const { return sizes_[stage]; }

 private:
  void predict() {
    std::vector<std::vector<Interval>> intervals;
    for (const ReplicaPlace& place : firsts_) intervals.push_back(place.segments);
    const int count = static_cast<int>(intervals.size());
    if (count == 1) intervals[0] = {{0, static_cast<int>(needs_.segments.size())}};
    const std::vector<PipelineRun> runs = runs_of(intervals);
    stages_.resize(intervals.size());
    std::vector<PassSeconds> seconds(runs.size());
    for (size_t r = 0; r < runs.size(); ++r) add_run(runs, r, seconds);
    size_t busiest = 0;
    for (size_t s = 1; s < stages_.size(); ++s)
      if (stages_[s].all() > stages_[busiest].all()) busiest = s;
    time_.computing = ranks_ * (stages_[busiest].computing + needs_.batch);
    time_.within = ranks_ * stages_[busiest].within;
    if (count > 1)
      time_.bubble = std::max(0.0, pipeline_seconds(runs, seconds, count, ranks_) - ranks_ * stages_[busiest].all());
  }

  void add_run(const std::vector<PipelineRun>& runs, size_t r, std::vector<PassSeconds>& seconds) {
    const auto at = static_cast<size_t>(runs[r].stage);
    StagePasses& stage = stages_[at];
    const double part = 1.0 * shards_[at] / needs_.shards;  // the most that a member of the stage computes
    const auto add = [&](double& pass, double computing, double within) {
      pass += computing + within;
      stage.computing += computing;
      stage.within += within;
    };
    for (int i = runs[r].segments.begin; i < runs[r].segments.end; ++i) {
      const SegmentNeeds& segment = needs_.segments[static_cast<size_t>(i)];
      stage.segments.push_back(i);
      add(stage.forward.emplace_back(0), segment.forward.of(part),
          seconds_of(segment.forward_sums, sizes_[at], cluster_));
      add(stage.backward.emplace_back(0), segment.backward.of(part),
          seconds_of(segment.backward_sums, sizes_[at], cluster_));
      seconds[r].forward += stage.forward.back();
      seconds[r].backward += stage.backward.back();
    }
    if (r + 1 == runs.size()) return;
    // The value is sent, and its gradient comes back: a byte each way for both stages.
    const auto bytes = static_cast<double>(needs_.segments[static_cast<size_t>(runs[r].segments.end - 1)].value);
    seconds[r].sent = cluster_.latency + bytes / cluster_.bandwidth;
    for (const size_t end : {r, r + 1}) {
      seconds[end].backward += bytes * cluster_.processor;
      stages_[static_cast<size_t>(runs[end].stage)].within += bytes * cluster_.processor;
    }
  }

  const NetworkNeeds& needs_;
  const Cluster& cluster_;
  int ranks_;
  std::vector<ReplicaPlace> firsts_;  // of each stage: a member with the most shards
  std::vector<int> sizes_, shards_;   // of each stage: its members, and the most shards of one of them
  std::vector<StagePasses> stages_;
  StepTime time_;
};

// The model replicas of an arrangement, and the time of their passes. Neither depends on how the state is divided.
class Replicas {
 public:
  Replicas(const NetworkNeeds& needs, int virtual_ranks, const Cluster& cluster, int tp, int pp) : needs_(needs) {
    const double portion = std::ceil(1.0 * needs.shards / tp) / needs.shards;
    SegmentCosts costs{.homes = needs.homes};
    for (const SegmentNeeds& segment : needs.segments)
      costs.seconds.push_back(segment.forward.of(portion) + segment.backward.of(portion));
    const ReplicaLimits limits{.shards = needs.shards, .tp = tp, .pp = pp, .segments = std::move(costs)};
    const std::vector<double> speeds(static_cast<size_t>(cluster.workers), 1.0);
    places_ = deal_replicas(limits, speeds);
    const auto shares = assign(virtual_ranks, replica_speeds(needs.shards, places_, speeds));
    for (const std::vector<Interval>& share : shares) ranks_.push_back(total(share));
    size_t first = 0;
    for (const int size : replica_sizes(limits, cluster.workers)) {
      members_.push_back({&places_[first], static_cast<size_t>(size)});
      first += static_cast<size_t>(size);
    }
    for (size_t r = 0; r < members_.size(); ++r)
      if (r == 0 || members_[r].size() != members_[r - 1].size()) {
        const auto next = std::find_if(members_.begin() + static_cast<std::ptrdiff_t>(r), members_.end(),
                                       [&](const auto& m) { return m.size() != members_[r].size(); });
        const auto most = std::max_element(ranks_.begin() + static_cast<std::ptrdiff_t>(r),
                                           ranks_.begin() + (next - members_.begin()));
        sizes_.emplace_back(needs, cluster, members_[r], *most);
      }
  }

  int count() const { return static_cast<int>(members_.size()); }
  bool equal() const { return sizes_.size() == 1; }
  const std::vector<ReplicaPasses>& sizes() const { return sizes_; }
  int most_ranks() const { return *std::max_element(ranks_.begin(), ranks_.end()); }
  // The time of the slowest replica's passes.
  StepTime passes() const {
    StepTime slowest;
    for (const ReplicaPasses& size : sizes_)
      if (size.time().all() > slowest.all()) slowest = size.time();
    return slowest;
  }

  std::vector<WorkerLoad> loads(int zero) const {
    std::vector<WorkerLoad> loads;
    std::map<std::tuple<size_t, int, int, int>, std::vector<int64_t>> known;
    int first = 0;
    for (size_t r = 0; r < members_.size(); first += ranks_[r++])
      for (const ReplicaPlace& place : members_[r]) {
        const auto [bytes, fresh] = known.try_emplace({members_[r].size(), place.stage, place.shards.begin, ranks_[r]});
        if (fresh) bytes->second = pass_bytes(needs_, members_[r], place, ranks_[r], zero);
        loads.push_back({.virtual_ranks = ranks_[r], .first = first, .place = place, .passes = bytes->second});
      }
    return loads;
  }

 private:
  const NetworkNeeds& needs_;
  std::vector<ReplicaPlace> places_;
  std::vector<std::span<const ReplicaPlace>> members_;  // of each replica
  std::vector<int> ranks_;                              // .. and its virtual ranks
  std::vector<ReplicaPasses> sizes_;                    // of replicas of each size
};

// The bytes of a stage's parameters by segment, in the order of StagePasses: those that a member's passes read, and
// those whose gradient a member contributes once the segment's backward pass has ended. The members of a stage share
// the gradients of what is not cut.
struct StageBytes {
  std::vector<double> read, contributed;
  double all_contributed = 0;
  // Those that both passes of a rank gradient fetch: what the last segment reads stays for its backward pass.
  double fetched() const { return 2 * std::accumulate(read.begin(), read.end(), 0.0) - read.back(); }
};
StageBytes bytes_of(const NetworkNeeds& needs, const ReplicaPasses& replica, size_t stage) {
  const std::vector<int>& segments = replica.stages()[stage].segments;
  StageBytes bytes{.read = std::vector<double>(segments.size(), 0), .contributed = {}};
  bytes.contributed = bytes.read;
  const auto at = [&](int segment) {
    return static_cast<size_t>(std::ranges::find(segments, segment) - segments.begin());
  };
  for (size_t p = 0; p < needs.memory.parameters.size(); ++p) {
    const NetworkPart part = needs.memory.parts->gradients[p];
    const size_t last = at(part.segment), first = at(needs.first_readers[p]);
    if (last == segments.size()) continue;
    if (part.shard >= 0 && !contains({&replica.first(stage).shards, 1}, part.shard)) continue;
    const double all = gradient_of(needs, p);
    // Passes fetch the rows of tables that a rank gradient looks up, in the forward pass alone.
    const double read = is_table(needs, p) ? all / (2 * needs.virtual_ranks) : all;
    bytes.read[last] += read;
    if (first != last) bytes.read[first] += read;
    bytes.contributed[first] += part.shard < 0 ? all / replica.members(stage) : all;
  }
  bytes.all_contributed = std::accumulate(bytes.contributed.begin(), bytes.contributed.end(), 0.0);
  return bytes;
}

// How gradients leave.
struct Division {
  bool leaves;           // rank gradients leave as they are made, and not their sum with the last one
  double reduced, sums;  // bytes of gradients and of their sums that are sent for a byte that is contributed
};

// Returns the seconds of a member of a stage in the exchange of gradients. They leave segment by segment while the
// backward pass runs, and their sums follow; what is left afterwards is waited for.
double exchange_seconds(const StagePasses& passes, const StageBytes& bytes, const Division& division, double ranks,
                        const Cluster& cluster) {
  double now = 0, link = 0, moved = 0;
  for (double rank = division.leaves ? 1 : ranks; rank <= ranks; ++rank) {
    for (const double forward : passes.forward) now += division.leaves ? forward : 0;
    for (size_t i = passes.segments.size(); i-- > 0;) {
      now += passes.backward[i];
      const double sent = bytes.contributed[i] * (division.reduced + (rank == ranks ? division.sums : 0));
      link = std::max(link, now) + sent / cluster.bandwidth;
      moved += sent;
    }
  }
  const double waited = std::max(0.0, link - now);
  return waited + std::max(0.0, moved - waited * cluster.bandwidth) * cluster.processor;
}

// Returns the seconds in which a member fetches parameters (ZeRO-3) for the passes of a rank gradient: each segment's
// while the one before runs. `missing`: the part of them that others keep.
double fetch_seconds(const StagePasses& passes, const StageBytes& bytes, double missing, const Cluster& cluster) {
  double waited = 0, moved = 0, before = 0;
  const auto fetch = [&](size_t i, double pass) {
    const double sent = missing * bytes.read[i];
    if (sent > 0) waited += std::max(0.0, 2 * cluster.latency + sent / cluster.bandwidth - before);
    moved += sent;
    before = pass;
  };
  for (size_t i = 0; i < passes.segments.size(); ++i) fetch(i, passes.forward[i]);
  before = passes.backward.back();
  for (size_t i = passes.segments.size() - 1; i-- > 0;) fetch(i, passes.backward[i]);
  return waited + std::max(0.0, moved - waited * cluster.bandwidth) * cluster.processor;
}

// Adds what follows the passes to their time. `all`: the bytes of the gradients of all parameters.
StepTime time_of(const NetworkNeeds& needs, const Cluster& cluster, const Arrangement& arrangement,
                 const Replicas& replicas, double all) {
  StepTime time = replicas.passes();
  const double workers = cluster.workers, ranks = replicas.most_ranks();
  const bool sharded = arrangement.zero > 0, leaves = arrangement.zero >= 2, fetches = arrangement.zero == 3;
  const double kept = sharded ? std::min<double>(arrangement.copies, workers) / workers : 1;
  // Owners of buckets are members of a replica that contribute to them; with ZeRO they may be any.
  const double owners = sharded ? workers : replicas.count();
  double large = 0;      // of the parameters, those that are cut into buckets
  double of_tables = 0;  // .. those that are sparse tables, whose sums all members get
  for (size_t p = 0; p < needs.memory.parameters.size(); ++p) {
    const double part = gradient_of(needs, p) / all;
    if (part * all > static_cast<double>(MemberOptions().bucket_elements) * sizeof(float)) large += part;
    if (is_table(needs, p)) of_tables += part;
  }
  const double summed = sharded ? kept * (1 - of_tables) + of_tables : 1;
  double contributed = 0, fetched = 0;  // the most of any member, as parts of all parameters
  const auto add_stage = [&](const ReplicaPasses& replica, size_t s) {
    const StageBytes bytes = bytes_of(needs, replica, s);
    contributed = std::max(contributed, bytes.all_contributed / all);
    fetched = std::max(fetched, bytes.fetched() / all);
    const double sums = all * (summed - 1 / workers);
    const Division division{.leaves = leaves,
                            .reduced = (owners - 1) / owners,
                            .sums = bytes.all_contributed > 0 ? sums / bytes.all_contributed : 0};
    double exchange = exchange_seconds(replica.stages()[s], bytes, division, replica.ranks(), cluster);
    if (fetches) exchange += replica.ranks() * fetch_seconds(replica.stages()[s], bytes, 1 - kept, cluster);
    time.exchange = std::max(time.exchange, exchange);
  };
  for (const ReplicaPasses& replica : replicas.sizes())
    for (size_t s = 0; s < replica.stages().size() && workers > 1; ++s) add_stage(replica, s);
  if (workers == 1) contributed = 1;
  const double values = fetches ? 0 : all * (1 - kept) / cluster.bandwidth;
  if (workers > 1)  // gradients, sums, parts of the trailer, trailer, values
    time.exchange += values + (sharded ? 5 : 4) * cluster.latency;
  // A member adds up its own rank gradients, and an owner those that it gets.
  const double own = leaves && workers > 1 ? 0 : (ranks - 1) * contributed;
  const double of_all = ((leaves ? ranks : 1) * replicas.count() - 1) / workers;
  // Copies: parts of a tensor that come in several buckets; values that leave while the next step may change them, and
  // come; parameters that are fetched, and given to others; an owner's part of a tensor that is not kept.
  double copies = 0;
  if (!sharded && workers > 1) copies = large;
  else if (kept < 1 && !fetches) copies = 1 / workers + 1 - kept;
  if (fetches) copies = ranks * fetched * (2 - kept);
  if (leaves) copies += ranks * contributed * large / workers;
  const double owned = sharded ? 1 / workers : 1;  // of norms and digests
  time.update = needs.touch + needs.norm * owned + needs.update * kept + needs.sum * (own + of_all) +
                needs.scale / workers + needs.digest * owned + needs.copy * copies;
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
  std::string text = dp > 0 ? fmt::format("dp={},", dp) : "";
  if (arrangement.tp > 1) text += fmt::format("tp={},", arrangement.tp);
  if (arrangement.pp > 1) text += fmt::format("pp={},", arrangement.pp);
  if (arrangement.zero > 0) return text + fmt::format("zero={} --copies {}", arrangement.zero, arrangement.copies);
  return text.substr(0, text.size() - 1);
}

std::string ArrangementEstimate::bound() const {
  const std::pair<double, const char*> parts[] = {{time.computing, "computing"},
                                                  {time.within, "values within replicas"},
                                                  {time.bubble, "the pipeline's bubble"},
                                                  {time.exchange, "the exchange of gradients"},
                                                  {time.update, "the update"}};
  return std::ranges::max_element(parts, {}, &std::pair<double, const char*>::first)->second;
}

std::vector<ArrangementEstimate> estimate_arrangements(const NetworkNeeds& needs, int virtual_ranks,
                                                       const Cluster& cluster) {
  check(cluster.workers >= 1 && cluster.workers <= kMostParallel && cluster.bandwidth > 0 && cluster.latency >= 0,
        "[arrangements] {} workers, {} bytes a second, {} s a message", cluster.workers, cluster.bandwidth,
        cluster.latency);
  invariant(needs.memory.parts.has_value(), "the part of each parameter is known");
  double all = 0;
  for (size_t p = 0; p < needs.memory.parameters.size(); ++p) all += gradient_of(needs, p);
  const int most = most_stages({std::vector<double>(needs.segments.size(), 1.0), needs.homes});
  std::vector<ArrangementEstimate> estimates;
  for (int tp = 1; tp <= std::min(needs.shards, cluster.workers); ++tp)
    for (int pp = 1; pp <= std::min(most, cluster.workers / tp); ++pp) {
      const Arrangement of_replicas{.tp = tp, .pp = pp};
      if (simplified(of_replicas, cluster.workers) != of_replicas) continue;
      const Replicas replicas(needs, virtual_ranks, cluster, tp, pp);
      for (int zero = 0; zero <= (cluster.workers > 1 ? needs.most_zero : 0); ++zero)
        for (const int copies : zero == 0 ? std::vector{Arrangement().copies} : cluster.copies) {
          const Arrangement arrangement{.zero = zero, .copies = copies, .tp = tp, .pp = pp};
          ArrangementEstimate& estimate = estimates.emplace_back(ArrangementEstimate{
              .arrangement = arrangement, .dp = replicas.equal() ? replicas.count() : 0, .time = {}});
          if (needs.timed) estimate.time = time_of(needs, cluster, arrangement, replicas, all);
          for (const MemoryForecast& w : forecast_memory(needs.memory, arrangement, replicas.loads(zero))) {
            estimate.peak = std::max(estimate.peak, w.peak);
            estimate.host = std::max(estimate.host, w.host);
          }
          estimate.fits = cluster.memory == 0 || estimate.peak <= cluster.memory;
        }
    }
  sort(estimates);
  return estimates;
}

}  // namespace elinvar
