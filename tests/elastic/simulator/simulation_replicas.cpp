// The simulator: model replicas, whose members compute rank gradients together (tensor parallelism). They exchange
// values several times within each, before its tensors and between them, and each has the tensors of its own virtual
// shards and of what is not cut.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "elastic/protocol/gradient_layout.h"
#include "tests/elastic/simulator/simulation.h"
#include "tests/elastic/tensor_parts.h"

namespace elinvar {

namespace {

// Every rank gradient has 2 to 4 exchanges of values, of which at least one comes before its tensors, and one between
// or after them.
uint64_t draw_of(int64_t step, int vrank) { return mix(static_cast<uint64_t>(step * 1000 + vrank)); }
int rounds_of(int64_t step, int vrank) { return 2 + static_cast<int>(draw_of(step, vrank) % 3); }
int early_rounds_of(int64_t step, int vrank) {
  return 1 + static_cast<int>(draw_of(step, vrank) / 8 % static_cast<uint64_t>(rounds_of(step, vrank) - 1));
}

uint64_t value_of(uint64_t state, const ScalingState& scaling_state, int64_t step, int vrank, int round, int shard) {
  const auto place = static_cast<uint64_t>(((step * 100 + vrank) * 100 + round) * 100 + shard);
  return mix(state ^ mix(place ^ mix(static_cast<uint64_t>(scaling_state.samples * 1000 + scaling_state.batch))));
}

}  // namespace

// The same elements, in the same order, as tensors that virtual shards have, or that are not cut. One of the latter may
// span several buckets, as may one of a shard.
void Simulation::cut_gradients() {
  if (s_.tp > 1 && s_.shards == 2) {
    shapes_ = {{2}, {1}, {2}};
    parts_ = test::parts_of_shards({1, -1, 0});
  } else if (s_.tp > 1 && s_.shards == 3) {
    shapes_ = {{1}, {2}, {1}, {1}};
    parts_ = test::parts_of_shards({2, -1, 0, 1});
  } else if (s_.tp > 1) {
    shapes_ = {{1}, {1}, {1}, {1}, {1}};
    parts_ = test::parts_of_shards({1, -1, 0, 3, 2});
  }
  buckets_ = GradientLayout(1, ShardOptions{.multiple = 1, .parameters = shapes_}, parts_).shard_buckets();
}

RankGradient Simulation::in_tensors(RankGradient gradient) const {
  if (s_.tp == 1 || gradient.gradients.empty()) return gradient;
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

// Drops the tensors of virtual shards that others compute.
void Simulation::keep_own(RankGradient& gradient, const Interval& own) const {
  for (size_t t = 0; t < gradient.gradients.size(); ++t) {
    const int shard = parts_->gradients[t].shard;
    if (shard >= 0 && !contains({&own, 1}, shard)) gradient.gradients[t] = Tensor();
  }
}

// A record can be read again, which checks the places, and members of a replica have the same virtual ranks.
void Simulation::check_places(const Generation& g) {
  const Generation read = generation_from(nlohmann::json::parse(to_json(g).dump()));
  if (read.shards != s_.shards) violate("generation {} has {} virtual shards", g.number, read.shards);
  for (size_t m = 1; m < read.members.size(); ++m) {
    const GenerationMember &before = read.members[m - 1], &now = read.members[m];
    if (before.place.replica != now.place.replica) continue;
    if (before.share != now.share || before.first_share != now.first_share)
      violate("members {} and {} of a replica have other virtual ranks", before.id, now.id);
  }
  const auto members = static_cast<int>(read.members.size());
  if (read.members.back().place.replica + 1 != (members + s_.tp - 1) / s_.tp)
    violate("generation {} has {} replicas of {} members", g.number, read.members.back().place.replica + 1, members);
}

// --- A rank gradient. go_on() runs up to the next exchange, and again once the values of the others are there.

void Simulation::begin_together(Process& p, int vrank) {
  Member& m = *p.member;
  p.together = Process::Together{.step = m.position().step,
                                 .vrank = vrank,
                                 .begun = m.gradients().begun(vrank),
                                 .last = m.position().last(),
                                 .scaling_state = m.scaling().current(),
                                 .own = m.replica().place().shards};
  m.replica_exchange().begin(vrank);
  later(p, p.gradient_seconds * uniform(0.2, 0.4), [this](Process& q) { go_on(q); });
}

void Simulation::go_on(Process& p) {
  Process::Together& t = *p.together;
  if (t.round < early_rounds_of(t.step, t.vrank)) return exchange(p, values_of_shards(p));
  put_next(p);
  if (!p.alive) return;
  if (t.round < rounds_of(t.step, t.vrank)) return exchange(p, values_of_shards(p));
  if (t.opens && t.left > 0) return later(p, p.gradient_seconds * uniform(0.05, 0.2), [this](Process& q) { go_on(q); });
  if (!t.digested && p.member->audit().compares(t.step, t.vrank)) return exchange(p, own_gradients(p));
  finish_together(p);
}

// Computes the tensors, and then puts one of them at a time if they are wanted early.
void Simulation::put_next(Process& p) {
  Process::Together& t = *p.together;
  StepGradients& gradients = p.member->gradients();
  if (p.member->position().fenced()) ++result_.interrupted;
  if (!t.computed) {
    t.computed = true;
    if (!t.last) t.gradient = compute(p, t.step, t.vrank, t.scaling_state, /*together=*/true);
    t.left = t.gradient.gradients.size();
    if (t.misled) mislead(p);
    if (t.left == 0 || gradients.stale(t.vrank, t.begun) || !gradients.opens(t.vrank) || pick(4) == 0) return;
    t.opens = p.open = true;
    t.passes = gradients.by_rank();
    ++result_.opened;
    gradients.open(t.step, t.vrank, t.gradient.facts.count, t.gradient.batch_statistics);
    if (kills_beside_open_) kill_beside(p);
    return;
  }
  while (t.opens && t.left > 0) {
    const Tensor& next = t.gradient.gradients[--t.left];
    if (!next.defined()) continue;
    if (!gradients.stale(t.vrank, t.begun)) gradients.put(static_cast<int>(t.left), next);
    while (pick(2) > 0 && p.member->reduction().work()) {
    }
    return flush(p);
  }
}

void Simulation::exchange(Process& p, const messages::ShardValues& values) {
  ReplicaExchange& exchange = p.member->replica_exchange();
  if (!exchange.going()) return give_up(p);
  exchange.send(values);
  if (kills_beside_open_ && pick(2) == 0) kill_beside(p);
}

// Returns whether the loop goes on, because the rank gradient was given up.
bool Simulation::take_within(Process& p) {
  Process::Together& t = *p.together;
  ReplicaExchange& exchange = p.member->replica_exchange();
  if (!exchange.going()) {
    give_up(p);
    return true;
  }
  const std::optional<std::map<int, messages::ShardValues>> others =
      exchange.take([](int, const auto&) { return true; });
  if (!others) return false;
  ++result_.exchanged;
  if (t.round < rounds_of(t.step, t.vrank)) {
    check_values(p, *others);
    ++t.round;
  } else {
    t.gradient.digest = digest_of_all(p, *others);
    t.digested = true;
  }
  later(p, p.gradient_seconds * uniform(0.05, 0.2), [this](Process& q) { go_on(q); });
  return false;
}

void Simulation::give_up(Process& p) {
  ++result_.given_up;
  p.member->replica_exchange().end();
  p.together.reset();
  p.open = false;
}

void Simulation::finish_together(Process& p) {
  const Process::Together t = std::move(*p.together);
  StepGradients& gradients = p.member->gradients();
  p.member->replica_exchange().end();
  p.together.reset();
  p.open = false;
  if (gradients.stale(t.vrank, t.begun)) {
    ++result_.stale;
    return;
  }
  if (t.passes) gradients.close(t.step, t.vrank, {.facts = t.gradient.facts}, p.gradient_seconds);
  else gradients.add(t.step, t.vrank, t.gradient, p.gradient_seconds);
  if (t.digested) gradients.complete(t.step, t.vrank, t.gradient.facts, t.gradient.digest);
}

// --- Values.

// A bit may flip in what a worker sends, and so in what others compute.
messages::ShardValues Simulation::values_of_shards(Process& p) {
  const Process::Together& t = *p.together;
  messages::ShardValues told;
  const bool flips = p.flip == Flip::gradient && computes_audited(p, t.step, t.vrank) && pick(2) == 0;
  if (flips) damaged(p, "a value", t.step);
  for (int shard = t.own.begin; shard < t.own.end; ++shard) {
    uint64_t value = value_of(p.state, t.scaling_state, t.step, t.vrank, t.round, shard);
    if (flips) value ^= 1;
    told.values.push_back({shard, shard + 1, {sizeof(value)}, DType::u8});
    told.elements.push_back(blob_of(std::string(reinterpret_cast<const char*>(&value), sizeof(value))));
  }
  return told;
}

void Simulation::check_values(Process& p, const std::map<int, messages::ShardValues>& others) {
  const Process::Together& t = *p.together;
  const Generation& g = *p.member->position().generation;
  bool right = true;
  std::vector<Interval> shards = {t.own};
  for (const auto& [member, told] : others) {
    const GenerationMember& other = g.members.at(static_cast<size_t>(member));
    const Interval own = other.place.shards;
    shards.push_back(own);
    bool equal = told.vrank == t.vrank && told.number == t.round && static_cast<int>(told.values.size()) == own.size();
    for (size_t i = 0; equal && i < told.values.size(); ++i) {
      const int shard = own.begin + static_cast<int>(i);
      const uint64_t expected = value_of(p.state, t.scaling_state, t.step, t.vrank, t.round, shard);
      equal = told.values[i].begin == shard && told.values[i].end == shard + 1 &&
              told.elements[i].bytes == sizeof(expected) &&
              std::memcmp(told.elements[i].data, &expected, sizeof(expected)) == 0;
    }
    if (!equal && !p.damaged && !workers_.at(other.peer)->damaged)
      violate("worker {} got other values of virtual rank {} from worker {}", p.peer, t.vrank, other.peer);
    right = right && equal;
  }
  if (total(shards) != s_.shards) violate("worker {} has values of {} shards", p.peer, total(shards));
  if (!right) mislead(p);
}

// Wrong values damage all that is computed from them, through no fault of this worker.
void Simulation::mislead(Process& p) {
  Process::Together& t = *p.together;
  t.misled = true;
  for (size_t i = 0; i < t.left; ++i) {
    Tensor& tensor = t.gradient.gradients[i];
    if (tensor.defined()) tensor = Tensor::full(tensor.shape(), static_cast<double>(p.peer));
  }
}

// --- Digests of rank gradients that an audit compares. Each member has those of its shards, and its own of what all
// have.

messages::ShardValues Simulation::own_gradients(const Process& p) const {
  const RankGradient& gradient = p.together->gradient;
  const Interval own = p.together->own;
  std::string bytes;
  for (size_t i = 0; i < gradient.gradients.size(); ++i)
    if (const Tensor& tensor = gradient.gradients[i]; parts_->gradients[i].shard >= 0 && tensor.defined())
      bytes.append(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
  messages::ShardValues told;
  told.values.push_back({own.begin, own.end, {static_cast<int64_t>(bytes.size())}, DType::u8});
  told.elements.push_back(blob_of(std::move(bytes)));
  return told;
}

Digest Simulation::digest_of_all(Process& p, const std::map<int, messages::ShardValues>& others) {
  RankGradient whole = p.together->gradient;
  for (const auto& [member, told] : others) {
    const Interval own{told.values.at(0).begin, told.values.at(0).end};
    const Blob& blob = told.elements.at(0);
    size_t at = 0;
    for (size_t i = 0; i < whole.gradients.size(); ++i) {
      const auto bytes = static_cast<size_t>(shapes_[i].numel()) * sizeof(float);
      const int shard = parts_->gradients[i].shard;
      if (shard < 0 || !contains({&own, 1}, shard) || at + bytes > blob.bytes) continue;
      whole.gradients[i] = Tensor::empty(shapes_[i]);
      std::memcpy(whole.gradients[i].data<float>(), blob.data + at, bytes);
      at += bytes;
    }
  }
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    if (whole.gradients[i].defined()) continue;
    const bool damage = std::ranges::any_of(workers_, [](const auto& entry) { return entry.second->damaged; });
    if (!damage) violate("worker {} does not learn the digest of a gradient", p.peer);
    whole.gradients[i] = Tensor::full(shapes_[i], 0);
  }
  return digest_of(whole);
}

}  // namespace elinvar
