// The simulator: model replicas, whose members compute rank gradients together (tensor and pipeline parallelism). Those
// of a stage exchange values several times within each, before its tensors and between them, and each has the tensors
// of its own segments and virtual shards, and of what is not cut. simulation_stages.cpp has the passes of stages.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "elastic/protocol/gradient_layout.h"
#include "tests/elastic/simulator/simulation.h"
#include "tests/elastic/tensor_parts.h"

namespace elinvar {

namespace {

// A whole rank gradient has 2 to 4 exchanges of values, of which at least one comes before its tensors, and one between
// or after them.
uint64_t draw_of(int64_t step, int vrank) { return mix(static_cast<uint64_t>(step * 1000 + vrank)); }

uint64_t value_of(uint64_t state, uint64_t input, const ScalingState& scaling_state, int64_t step, int vrank,
                  int64_t number, int shard) {
  const auto place = static_cast<uint64_t>(((step * 100 + vrank) * 100 + number) * 100 + shard);
  return mix(state ^ input ^
             mix(place ^ mix(static_cast<uint64_t>(scaling_state.samples * 1000 + scaling_state.batch))));
}

}  // namespace

// The same elements, in the same order, as tensors that belong to segments and virtual shards, or that are not cut. A
// tensor may span several buckets.
void Simulation::cut_gradients() {
  if (most_.pp > 1 || most_.zero > 2) {
    std::vector<int> of_segments = {0, 1, 2, 3};
    shapes_ = {{1}, {2}, {1}, {1}};
    segments_.homes = of_segments;
    if (s_.tied || s_.seed % 3 == 0) {
      of_segments = {s_.tied ? 3 : 0, 0, 1, 2, 3};
      shapes_ = {{1}, {1}, {1}, {1}, {1}};
    }
    if (s_.tied) segments_.homes[0] = 3;
    parts_.emplace();
    for (const int segment : of_segments) {
      const int tensor = static_cast<int>(parts_->gradients.size());
      const bool cut = virtual_shards() > 1 && tensor != static_cast<int>(s_.seed % 4);
      parts_->gradients.push_back({.segment = segment, .shard = cut ? tensor % virtual_shards() : -1});
      if (tensor < kSegments)
        segments_.seconds.push_back(1 + static_cast<double>(mix(s_.seed * 4 + static_cast<uint64_t>(tensor)) % 4));
    }
    parts_->statistics = {static_cast<int>(s_.seed % kSegments)};
    if (most_.pp == 1) segments_ = {};
  } else if (most_.tp > 1 && s_.shards == 2) {
    shapes_ = {{2}, {1}, {2}};
    parts_ = test::parts_of_shards({1, -1, 0});
  } else if (most_.tp > 1 && s_.shards == 3) {
    shapes_ = {{1}, {2}, {1}, {1}};
    parts_ = test::parts_of_shards({2, -1, 0, 1});
  } else if (most_.tp > 1) {
    shapes_ = {{1}, {1}, {1}, {1}, {1}};
    parts_ = test::parts_of_shards({1, -1, 0, 3, 2});
  }
  buckets_ = GradientLayout(1, sharding(/*zero=*/1), parts_).shard_buckets();
}

ShardOptions Simulation::sharding(int zero) const {
  ShardOptions sharding{.multiple = 1, .parameters = shapes_, .sums = s_.sums, .zero = zero};
  if (s_.table) sharding.tables[0] = 1;
  return sharding;
}

RankGradient Simulation::in_tensors(RankGradient gradient) const {
  if (!parts_ || gradient.gradients.empty()) return gradient;
  std::vector<float> elements;
  for (const Tensor& t : gradient.gradients)
    elements.insert(elements.end(), t.span<float>().begin(), t.span<float>().end());
  gradient.gradients.clear();
  auto at = elements.begin();
  for (const Shape& shape : shapes_) {
    gradient.gradients.push_back(Tensor::from(std::vector<float>(at, at + shape.numel()), shape));
    at += shape.numel();
  }
  return gradient;
}

// Whether a member in this place computes a gradient, or the batch statistic, which follows them.
bool Simulation::has(const ReplicaPlace& place, int tensor) const {
  const auto t = static_cast<size_t>(tensor);
  NetworkPart part;
  if (t < parts_->gradients.size()) part = parts_->gradients[t];
  else part.segment = parts_->statistics.empty() ? 0 : parts_->statistics.at(t - parts_->gradients.size());
  const bool of_stage = place.segments.empty() || contains(place.segments, part.segment);
  return of_stage && (part.shard < 0 || contains({&place.shards, 1}, part.shard));
}

// Drops the tensors that others compute.
void Simulation::keep_own(RankGradient& gradient, const ReplicaPlace& place) const {
  int tensor = 0;
  for (std::vector<Tensor>* tensors : {&gradient.gradients, &gradient.batch_statistics})
    for (Tensor& t : *tensors)
      if (!has(place, tensor++)) t = Tensor();
}

// A record can be read again, which checks the places; a replica has as many members and stages as it may, which have
// the same virtual ranks, and each virtual shard of each segment once; and segments that are computed together are in
// one stage.
void Simulation::check_places(const Generation& g) {
  const Generation read = generation_from(nlohmann::json::parse(to_json(g).dump()));
  if (read.shards != virtual_shards()) violate("generation {} has {} virtual shards", g.number, read.shards);
  const auto members = static_cast<int>(read.members.size());
  const int tp = g.arrangement->tp, pp = g.arrangement->pp;
  const std::vector<int> sizes = replica_sizes({.tp = tp, .pp = pp}, members);
  if (read.members.back().place.replica + 1 != static_cast<int>(sizes.size()))
    violate("generation {} has {} replicas of {} members", g.number, read.members.back().place.replica + 1, members);
  size_t next = 0;
  for (const int size : sizes) {
    const GenerationMember& first = read.members[next];
    std::map<std::pair<int, int>, int> stages;  // by segment and shard
    std::vector<int> stage_sizes(static_cast<size_t>(std::min(pp, size)), 0);
    for (int i = 0; i < size; ++i, ++next) {
      const GenerationMember& m = read.members[next];
      if (m.place != g.members[next].place) violate("member {} has another place in a record than it was given", m.id);
      if (m.share != first.share || m.first_share != first.first_share)
        violate("members {} and {} of a replica have other virtual ranks", first.id, m.id);
      ++stage_sizes.at(static_cast<size_t>(m.place.stage));
      for (int segment = 0; segment < kSegments; ++segment)
        for (int shard = m.place.shards.begin; shard < m.place.shards.end; ++shard)
          if (m.place.segments.empty() || contains(m.place.segments, segment))
            if (!stages.emplace(std::pair{segment, shard}, m.place.stage).second)
              violate("segment {} and shard {} are computed twice in generation {}", segment, shard, g.number);
    }
    const auto [least, largest] = std::minmax_element(stage_sizes.begin(), stage_sizes.end());
    if (*least < 1 || *largest > tp || *largest - *least > 1)
      violate("a stage of generation {} has {} members, another one {}", g.number, *least, *largest);
    if (stages.size() != static_cast<size_t>(kSegments * virtual_shards()))
      violate("a replica of generation {} has {} shards of segments", g.number, stages.size());
    for (size_t segment = 0; segment < segments_.homes.size(); ++segment)
      if (stages.at({static_cast<int>(segment), 0}) != stages.at({segments_.homes[segment], 0}))
        violate("segments {} and {} are in different stages", segment, segments_.homes[segment]);
  }
}

// --- A rank gradient. go_on() runs up to the next exchange, and again once the values of the others are there.

// The rank gradients of the step begin, or begin anew in another generation.
void Simulation::begin_together(Process& p) {
  Member& m = *p.member;
  p.together = Process::Together{.step = m.position().step,
                                 .last = m.position().last(),
                                 .scaling_state = m.scaling().current(),
                                 .place = m.replica().place()};
  m.stage_exchange().begin(/*in_group=*/m.replica().staged() && m.groups().agreed());
  if (m.replica().staged()) begin_passes(p);
}

// Begins the next rank gradient, or the passes of all.
void Simulation::begin_rank(Process& p, int vrank) {
  if (!p.together) begin_together(p);
  if (p.member->replica().staged()) {
    if (go_on_together(p)) advance(p);
    return;
  }
  Process::Together& t = *p.together;
  begin_pass(p, vrank);
  const uint64_t draw = draw_of(t.step, vrank);
  t.all = 2 + static_cast<int64_t>(draw % 3);
  t.early = 1 + static_cast<int64_t>(draw / 8 % static_cast<uint64_t>(t.all - 1));
  begin_segments_together(p);
  later(p, p.gradient_seconds * uniform(0.2, 0.4), [this](Process& q) { go_on(q); });
}

Simulation::Process::Together::Rank& Simulation::begin_pass(Process& p, int vrank) {
  Process::Together& t = *p.together;
  t.vrank = vrank;
  t.value = 0;
  t.ends = true;
  t.attaches = false;
  const auto [entry, first] = t.ranks.try_emplace(vrank);
  if (first) {
    entry->second.begun = p.member->gradients().begun(vrank);
    entry->second.samples = !t.last && has_samples(p, t.step, vrank, t.scaling_state);
  }
  p.member->replica_exchange().begin(vrank);
  return entry->second;
}

void Simulation::go_on(Process& p) {
  enter_segments(p, segments_before(p), [this](Process& q) { go_on_in_segments(q); });
}

void Simulation::go_on_in_segments(Process& p) {
  Process::Together& t = *p.together;
  Process::Together::Rank& rank = t.ranks.at(t.vrank);
  if (rank.exchanges < t.early) return exchange(p);
  if (t.ends && !t.attaches) {
    put_next(p);
    if (!p.alive) return;
  }
  if (rank.exchanges < t.all) return exchange(p);
  if (t.ends && rank.opens && rank.left > 0)
    return later(p, p.gradient_seconds * uniform(0.05, 0.2), [this](Process& q) { go_on(q); });
  enter_segments(p, p.residence ? p.residence->order.size() : 0, [this](Process& q) { end_pass(q); });
}

// Computes the tensors, and then puts one of them at a time if they are wanted early. The gradients of other virtual
// ranks come between those of several runs of segments.
void Simulation::put_next(Process& p) {
  Process::Together& t = *p.together;
  Process::Together::Rank& rank = t.ranks.at(t.vrank);
  StepGradients& gradients = p.member->gradients();
  if (p.member->position().fenced()) ++result_.interrupted;
  if (!rank.computed) {
    rank.computed = true;
    if (rank.samples) {
      rank.gradient = compute(p, t.step, t.vrank, t.scaling_state, /*together=*/true);
      if (rank.gradient.gradients.empty()) {  // with a damaged state
        rank.gradient = in_tensors(make_gradient(state_after(p, t.step), t.step, t.vrank, s_.vranks, t.scaling_state));
        keep_own(rank.gradient, t.place);
        rank.misled = true;
      }
    }
    rank.left = rank.gradient.gradients.size();
    if (rank.misled) mislead(p);
    if (rank.left == 0 || gradients.stale(t.vrank, rank.begun) || !gradients.opens(t.vrank) || pick(4) == 0) return;
    if (t.place.segments.size() > 1 || gradients.stay_on_device()) return;
    rank.opens = p.open = true;
    rank.passes = gradients.by_rank();
    ++result_.opened;
    gradients.open(t.step, t.vrank, rank.gradient.facts.count, rank.gradient.batch_statistics);
    if (kills_beside_open_) kill_beside(p);
    return;
  }
  while (rank.opens && rank.left > 0) {
    const Tensor& next = rank.gradient.gradients[--rank.left];
    if (!next.defined()) continue;
    if (!gradients.stale(t.vrank, rank.begun)) gradients.put(static_cast<int>(rank.left), next);
    while (pick(2) > 0 && p.member->reduction().work()) {
    }
    return flush(p);
  }
}

void Simulation::exchange(Process& p) {
  ReplicaExchange& exchange = p.member->replica_exchange();
  if (!exchange.going()) return give_up(p);
  if (std::shared_ptr<GpuGroup> group = p.member->groups().agreed()) {
    exchange_in_group(p, std::move(group));
    if (kills_beside_open_ && pick(2) == 0) kill_beside(p);
    return;
  }
  exchange.send(values_of_shards(p));
  p.together->awaits = Process::Together::Awaits::values;
  if (kills_beside_open_ && pick(2) == 0) kill_beside(p);
}

// Takes what has come for the rank gradients under way, or begins the next pass. Returns whether the loop goes on with
// something else, because they are over, or because all passes are computed.
bool Simulation::go_on_together(Process& p) {
  using Awaits = Process::Together::Awaits;
  Process::Together& t = *p.together;
  if (!p.member->stage_exchange().going()) {
    give_up(p);
    return true;
  }
  if (t.awaits == Awaits::nothing) return next_pass(p);
  if (t.awaits == Awaits::digests) return !take_digests(p);
  if (t.awaits == Awaits::output) {
    if (!make_transfers(p)) return false;
    t.awaits = Awaits::nothing;
    finish_pass(p);
    return p.alive && p.together ? next_pass(p) : true;
  }
  if (t.awaits == Awaits::input) {
    if (!is_input_taken(p)) return false;
  } else {
    const auto others = t.awaits == Awaits::transfer
                            ? values_in_group(p)
                            : p.member->replica_exchange().take([](int, const auto&) { return true; });
    if (!others) return false;
    ++result_.exchanged;
    check_values(p, *others);
    ++t.ranks.at(t.vrank).exchanges;
  }
  t.awaits = Awaits::nothing;
  later(p, p.gradient_seconds * uniform(0.05, 0.2), [this](Process& q) { go_on(q); });
  return false;
}

void Simulation::give_up(Process& p) {
  ++result_.given_up;
  p.member->replica_exchange().end();
  p.member->stage_exchange().end();
  p.together.reset();
  p.residence.reset();
  p.open = false;
}

void Simulation::finish_rank(Process& p) {
  Process::Together& t = *p.together;
  const int vrank = t.vrank;
  Process::Together::Rank& rank = t.ranks.at(vrank);
  RankGradient gradient = std::move(rank.gradient);
  rank.left = 0;
  StepGradients& gradients = p.member->gradients();
  p.open = false;
  if (gradients.stale(vrank, rank.begun)) {
    ++result_.stale;
    return;
  }
  RankFacts& facts = gradient.facts;
  const ModelReplica& replica = p.member->replica();
  if (!replica.staged()) facts.attached = attached(p.state, t.step, vrank);
  if (replica.staged() && replica.place().stage != replica.runs().back().stage) facts.loss_sum = facts.correct = 0;
  share_digests(p, vrank, gradient);
  if (rank.passes) gradients.close(t.step, vrank, {.facts = facts}, p.gradient_seconds);
  else gradients.add(t.step, vrank, gradient, p.gradient_seconds);
  computes_its_part(p, vrank);
}

void Simulation::computes_its_part(const Process& p, int vrank) {
  const MemberPosition& at = p.member->position();
  if (at.fenced()) return;
  auto& parts = computed_parts_[{at.number(), at.completed, vrank}];
  const ReplicaPlace& place = p.together->place;
  for (int segment = 0; segment < kSegments; ++segment)
    for (int shard = place.shards.begin; shard < place.shards.end; ++shard)
      if ((place.segments.empty() || contains(place.segments, segment)) && !parts.emplace(segment, shard).second)
        violate("worker {} computes segment {} and shard {} of virtual rank {} again", p.peer, segment, shard, vrank);
}

// --- Values.

bool Simulation::has_samples(const Process& p, int64_t step, int vrank, const ScalingState& scaling_state) const {
  return !make_gradient(state_after(p, step), step, vrank, s_.vranks, scaling_state).gradients.empty();
}

// A bit may flip in what a worker sends, and so in what others compute.
messages::ShardValues Simulation::values_of_shards(Process& p) {
  const Process::Together& t = *p.together;
  messages::ShardValues told;
  const bool flips = p.flip == Flip::gradient && !t.attaches && computes_audited(p, t.step, t.vrank) && pick(2) == 0;
  if (flips) damaged(p, "a value", t.step);
  for (int shard = t.place.shards.begin; shard < t.place.shards.end; ++shard) {
    uint64_t value = value_of(p.state, t.value, t.scaling_state, t.step, t.vrank, t.ranks.at(t.vrank).exchanges, shard);
    if (flips) value ^= 1;
    told.values.push_back({shard, shard + 1, {sizeof(value)}, DType::u8});
    told.elements.push_back(blob_of(std::string(reinterpret_cast<const char*>(&value), sizeof(value))));
  }
  return told;
}

void Simulation::check_values(Process& p, const std::map<int, messages::ShardValues>& others) {
  const Process::Together& t = *p.together;
  const Generation& g = *p.member->position().generation;
  const int64_t number = t.ranks.at(t.vrank).exchanges;
  bool right = true;
  std::vector<Interval> shards = {t.place.shards};
  for (const auto& [member, told] : others) {
    const GenerationMember& other = g.members.at(static_cast<size_t>(member));
    const Interval own = other.place.shards;
    shards.push_back(own);
    bool equal = told.vrank == t.vrank && told.number == number && static_cast<int>(told.values.size()) == own.size();
    for (size_t i = 0; equal && i < told.values.size(); ++i) {
      const int shard = own.begin + static_cast<int>(i);
      const uint64_t expected = value_of(p.state, t.value, t.scaling_state, t.step, t.vrank, number, shard);
      equal = told.values[i].begin == shard && told.values[i].end == shard + 1 &&
              told.elements[i].bytes == sizeof(expected) &&
              std::memcmp(told.elements[i].data, &expected, sizeof(expected)) == 0;
    }
    if (!equal && !is_damaged(p))
      violate("worker {} got other values of virtual rank {} from worker {}", p.peer, t.vrank, other.peer);
    right = right && equal;
  }
  if (total(shards) != virtual_shards()) violate("worker {} has values of {} shards", p.peer, total(shards));
  if (!right) mislead(p);
}

// Whether some worker of this one's replica has been damaged, which may damage what the others compute.
bool Simulation::is_damaged(const Process& p) const {
  const MemberPosition& at = p.member->position();
  return p.damaged || std::ranges::any_of(p.member->replica().members(), [&](int member) {
           return workers_.at(at.generation->members.at(static_cast<size_t>(member)).peer)->damaged;
         });
}

// Wrong values damage all that is computed from them, through no fault of this worker.
void Simulation::mislead(Process& p) {
  Process::Together::Rank& rank = p.together->ranks.at(p.together->vrank);
  rank.misled = true;
  if (rank.computed) rank.gradient.facts.loss_sum += 1;
  for (size_t i = 0; i < rank.left; ++i) {
    Tensor& tensor = rank.gradient.gradients[i];
    if (tensor.defined()) tensor = Tensor::full(tensor.shape(), static_cast<double>(p.peer));
  }
}

}  // namespace elinvar
