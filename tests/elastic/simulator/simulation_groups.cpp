// The simulator: groups of GPUs. Has their communicators, which carry tensors in simulated time, and fail and hang;
// each worker's thread that forms groups; and the check that all members make a step in the same way (PROTOCOL.md,
// "What always holds", 9).
#include <algorithm>
#include <cstring>

#include "tensor/base/check.h"
#include "tests/elastic/simulator/blob_of_number.h"
#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

namespace {

constexpr double kFormed = 1.5, kShrunk = 0.7;  // maximum durations in seconds
constexpr double kPoll = 0.01;

}  // namespace

// A piece is transferred once both ends have begun, if the network between them is whole. A member that is dead or has
// left the group takes no part; some of the others are told so, others keep waiting.
class Simulation::Communicator final : public NcclCommunicator {
 public:
  Communicator(Simulation& sim, PeerId self, int me, std::shared_ptr<Room> room)
      : sim_(sim), self_(self), me_(me), room_(std::move(room)) {}
  ~Communicator() override { drop(); }

  State state(std::string& why) override {
    if (under_way_ && !failed_) meet();
    if (under_way_ && !failed_ && missing_ > 0 && is_told_ && anybody_gone()) failed_ = true;
    if (failed_) {
      why = "a simulated transfer failed";
      return State::failed;
    }
    return !under_way_ || (missing_ == 0 && sim_.now_ >= done_at_) ? State::done : State::pending;
  }

  void transfer(std::span<const GpuPiece> sends, std::span<const GpuPiece> receives) override {
    std::string why;
    invariant(state(why) == State::done, "a transfer begins when what was begun before is done");
    sim_.transfers(*sim_.workers_.at(self_), *room_);
    under_way_ = true;
    looked_ = false;
    is_told_ = sim_.pick(2) == 0;
    done_at_ = sim_.now_ + sim_.uniform(0.001, 0.02);
    const int fate = sim_.faulty() ? sim_.pick(400) : -1;
    breaks_ = fate == 0;
    failed_ = fate == 1;
    missing_ = static_cast<int>(sends.size() + receives.size());
    if (fate == 2) missing_ = INT32_MAX;  // it hangs
    if (failed_ || fate == 2) return;
    for (const GpuPiece& p : sends) room_->sends[{me_, p.peer}].push_back({p, this});
    for (const GpuPiece& p : receives) room_->receives[{p.peer, me_}].push_back({p, this});
  }

  bool carried() override {
    if (breaks_) fail("[simulation] the device failed");
    return std::exchange(looked_, true);
  }
  void finish() override {}
  std::unique_ptr<NcclCommunicator> shrink(std::span<const int>) override {
    fail("[simulation] communicators are shrunk by the simulated former");
  }
  void abort() override {
    failed_ = true;
    drop();
  }

 private:
  bool reaches(int other) const {
    const PeerId peer = room_->members[static_cast<size_t>(other)];
    const Node& there = *sim_.workers_.at(peer);
    return there.alive && (there.far == sim_.workers_.at(self_)->far || sim_.now_ >= sim_.whole_from_);
  }
  bool anybody_gone() const {
    return std::ranges::any_of(room_->members, [&](PeerId peer) { return !sim_.workers_.at(peer)->alive; });
  }
  void meet() {
    for (int other = 0; other < static_cast<int>(room_->members.size()); ++other)
      if (other != me_ && reaches(other)) {
        meet({me_, other});
        meet({other, me_});
      }
  }
  void meet(const std::pair<int, int>& way) {
    auto &out = room_->sends[way], &in = room_->receives[way];
    while (!out.empty() && !in.empty()) {
      const Piece from = out.front(), to = in.front();
      invariant(from.piece.bytes == to.piece.bytes, "as many bytes are expected as are sent");
      std::memcpy(to.piece.at, from.piece.at, from.piece.bytes);
      --from.of->missing_;
      --to.of->missing_;
      out.pop_front();
      in.pop_front();
    }
  }
  void drop() {
    for (auto* pieces : {&room_->sends, &room_->receives})
      for (auto& [way, queue] : *pieces) std::erase_if(queue, [this](const Piece& p) { return p.of == this; });
  }

  Simulation& sim_;
  PeerId self_;
  int me_;
  std::shared_ptr<Room> room_;
  bool under_way_ = false, failed_ = false, breaks_ = false, looked_ = false, is_told_ = false;
  int missing_ = 0;  // missing pieces
  double done_at_ = 0;
};

// --- Workers.

void Simulation::equip(Process& p) {
  if (s_.gpus == 0 || pick(100) >= s_.gpus) return;
  const bool shares = pick(30) == 0;
  p.nccl = NcclSupport{.why_not = "",
                       .version = pick(30) == 0 ? "an older one" : "one",
                       .place = fmt::format("GPU {}", shares ? 1 : p.peer),
                       .shrinks = pick(10) > 0};
}

void Simulation::serve_groups(Process& p) {
  for (const GroupRequest& request : p.member->groups().take_requests()) form(p, request);
  Former& f = p.former;
  f.oldest = std::max(f.oldest, p.member->position().promised);
  if (f.forming != 0 && f.forming < f.oldest) {
    f.forming = 0;
    ++f.attempt;
  }
  for (auto it = f.formed.begin(); it != f.formed.end() && it->first < f.oldest;) {
    const bool whole = it->second.group->whole();
    if (it->first == p.member->groups().spare() && whole) {
      ++it;
      continue;
    }
    result_.aborted_groups += !whole;
    let_go(std::move(it->second));
    it = f.formed.erase(it);
  }
}

// Destroys the group in another thread, a little later.
void Simulation::let_go(Former::Formed&& over) {
  if (over.group) at(now_ + uniform(0, 0.05), [group = std::move(over.group)] {});
}

// Runs in that thread: not while the process is stopped, but also while its loop hangs.
void Simulation::beside(PeerId peer, int64_t attempt, double delay, std::function<void(Process&)> what) {
  at(now_ + delay, [=, this] {
    Process& p = *workers_.at(peer);
    if (!p.alive || p.former.attempt != attempt) return;
    if (now_ < p.stalled_until) return beside(peer, attempt, p.stalled_until - now_ + 1e-4, what);
    what(p);
    flush(p);
  });
}

void Simulation::form(Process& p, const GroupRequest& request) {
  Former& f = p.former;
  if (request.generation < f.oldest || f.forming > request.generation) return;
  ++f.attempt;
  f.forming = request.generation;
  if (auto stale = f.formed.extract(request.generation)) let_go(std::move(stale.mapped()));
  std::string name;
  bool fails = faulty() && pick(20) == 0;
  if (request.from) {
    auto parent = f.formed.extract(*request.from);
    if (parent && request.gone.empty()) {
      f.formed[request.generation] = std::move(parent.mapped());
      f.forming = 0;
      return;
    }
    fails = fails || !parent || !parent.mapped().group->whole();
    if (parent) name = parent.mapped().room->name;
    for (const int gone : request.gone) name += fmt::format(" without {}", gone);
    if (parent) let_go(std::move(parent.mapped()));
  }
  beside(p.peer, f.attempt, uniform(0.005, 0.1), [=, this, attempt = f.attempt](Process& q) {
    if (fails) return not_formed(q, request, "a simulated library fails");
    if (request.from) return come(q, attempt, request, name);
    if (request.id) return come(q, attempt, request, request.id->hex());
    NcclId id;
    ++named_;
    std::memcpy(id.bytes.data(), &named_, sizeof named_);
    q.member->groups().named(request.generation, id);
    come(q, attempt, request, id.hex());
  });
}

// All wait until the last member has arrived or one has given up.
void Simulation::come(Process& p, int64_t attempt, const GroupRequest& request, const std::string& name) {
  std::shared_ptr<Room>& room = rooms_[name];
  if (!room) room = std::make_shared<Room>();
  room->name = name;
  room->members.resize(static_cast<size_t>(request.members));
  room->members.at(static_cast<size_t>(request.me)) = p.peer;
  const double patience = request.from ? kShrunk : kFormed;
  beside(p.peer, attempt, patience, [=, this](Process& q) {
    if (q.former.forming == request.generation) not_formed(q, request, "others have not come");
  });
  const int64_t generation = request.generation;
  for (const PeerId peer : room->members)
    if (peer == 0 || workers_.at(peer)->former.forming != generation || !workers_.at(peer)->alive) return;
  for (const PeerId peer : room->members)
    beside(peer, workers_.at(peer)->former.attempt, uniform(0.001, 0.2),
           [=, this, here = room](Process& q) { formed(q, request, here); });
}

// The group forms at some members and not at others.
void Simulation::formed(Process& p, const GroupRequest& request, const std::shared_ptr<Room>& room) {
  Former& f = p.former;
  const int64_t generation = request.generation;
  if (f.forming != generation) return;  // too late
  if (faulty() && pick(15) == 0) return not_formed(p, request, "its end of the group fails");
  const auto me = static_cast<int>(std::ranges::find(room->members, p.peer) - room->members.begin());
  auto group = GpuGroup::of(std::make_unique<Communicator>(*this, p.peer, me, room),
                            static_cast<int>(room->members.size()), me, Device{});
  f.forming = 0;
  f.formed[generation] = {group, room};
  room->formed.insert(p.peer);
  p.member->groups().formed(generation, std::move(group));
}

void Simulation::not_formed(Process& p, const GroupRequest& request, const std::string& reason) {
  ++result_.not_formed;
  ++p.former.attempt;
  p.former.forming = 0;
  if (request.from) p.member->groups().not_shrunk(request.generation);
  else p.member->groups().not_formed(request.generation, reason);
}

// --- The loop, while it waits for a reduction.

void Simulation::wait_for_group(Process& p) {
  Member& m = *p.member;
  const std::optional<int64_t> progress = m.reduction().group_progress();
  if (!p.alive || !progress) return;
  if (p.group_since < 0 || *progress != p.group_progress) p.group_since = now_;
  p.group_progress = *progress;
  if (now_ > p.group_since + kTransferred) m.groups().stalled("the sums have not come");
  flush(p);
  look_again(p);
}

void Simulation::look_again(Process& p) {
  if (std::exchange(p.polls, true)) return;
  at(now_ + kPoll, [this, peer = p.peer] {
    Process& q = *workers_.at(peer);
    q.polls = false;
    advance(q);
  });
}

// --- Values of virtual shards that go through a group.

void Simulation::exchange_in_group(Process& p, std::shared_ptr<GpuGroup> group) {
  goes(p);
  Process::Together& t = *p.together;
  std::vector<GroupTensor> sends, receives;
  const messages::ShardValues own = values_of_shards(p);
  t.arriving.clear();
  for (const int other : p.member->replica().stage()) {
    if (other == p.member->position().index) continue;
    for (const Blob& value : own.elements) sends.push_back({tensor_of(value), other});
    const Interval shards = p.member->replica().place_of(other).shards;
    for (int shard = shards.begin; shard < shards.end; ++shard)
      receives.push_back({t.arriving[other].emplace_back(Tensor::zeros({2})), other});
  }
  group->transfer(sends, receives);
  t.group = std::move(group);
  t.awaits = Process::Together::Awaits::transfer;
  p.group_since = now_;
  look_again(p);
}

// Returns the values of the others once they are there.
std::optional<std::map<int, messages::ShardValues>> Simulation::values_in_group(Process& p) {
  Process::Together& t = *p.together;
  std::string why;
  const GpuGroup::State state = t.group->complete(why);
  if (state == GpuGroup::State::pending && now_ > p.group_since + kTransferred) why = "the values have not come";
  if (!why.empty()) p.member->groups().stalled(why);
  if (state != GpuGroup::State::done) {
    flush(p);
    if (state == GpuGroup::State::pending) look_again(p);
    return std::nullopt;
  }
  ++result_.exchanged_in_group;
  std::map<int, messages::ShardValues> others;
  for (const auto& [other, values] : std::exchange(t.arriving, {})) {
    messages::ShardValues& told = others[other];
    told.vrank = t.vrank;
    told.number = t.ranks.at(t.vrank).exchanges;
    int shard = p.member->replica().place_of(other).shards.begin;
    for (const Tensor& value : values) {
      told.values.push_back({shard, shard + 1, {value.bytes()}, DType::u8});
      told.elements.push_back(blob_of(value));
      ++shard;
    }
  }
  return others;
}

// --- Parameters after an update that go through a group.

// Returns false while the transfer is under way. If a fence ends it, the parameters come by messages.
bool Simulation::transfer_parameters(Process& p) {
  ValueExchange& values = p.member->values();
  Process::Updating& u = *p.updating;
  if (u.transferred || !values.by_group()) return true;
  if (!values.transfers()) {
    u.group.reset();
    return true;
  }
  if (!u.group) {
    const ValueExchange::GroupTransfer& plan = *values.by_group();
    std::vector<GroupTensor> sends, receives;
    for (const auto& [member, buckets] : plan.sends) {
      if (buckets.empty()) sends.push_back({Tensor::zeros({0}), member});
      for (const int b : buckets) sends.push_back({tensor_of(values_of(p, b).at(0)), member});
    }
    for (const auto& [member, buckets] : plan.receives) {
      if (buckets.empty()) receives.push_back({Tensor::zeros({0}), member});
      for (const int b : buckets) receives.push_back({u.arriving[b] = Tensor::zeros({1}), member});
    }
    plan.group->transfer(sends, receives);
    u.group = plan.group;
    p.group_since = now_;
    look_again(p);
    return false;
  }
  std::string why;
  const GpuGroup::State state = u.group->complete(why);
  if (state == GpuGroup::State::pending && now_ > p.group_since + kTransferred) why = "the parameters have not come";
  if (!why.empty()) p.member->groups().stalled(why);
  if (state == GpuGroup::State::done) {
    for (const auto& [b, value] : u.arriving) p.tiny.parameters[element_of(b)] = number_of<uint32_t>(blob_of(value));
    values.transferred();
    u.group.reset();
    ++result_.updated_in_group;
    return u.transferred = true;
  }
  flush(p);
  if (state == GpuGroup::State::pending) look_again(p);
  return false;
}

void Simulation::used_group(const std::string& made) {
  ++(made == "new" ? result_.new_groups : made == "shrunk" ? result_.shrunk_groups : result_.kept_groups);
}

// --- Invariants of a step in a generation.

void Simulation::goes(Process& p) {
  p.group_since = -1;
  Member& m = *p.member;
  if (!m.position().active() || m.position().fenced()) return;
  const std::pair plane{m.groups().agreed() != nullptr, m.reduction().in_group()};
  const auto [first, mine] = planes_.try_emplace({m.position().number(), m.position().completed}, plane);
  if (first->second != plane)
    violate("of generation {} some make step {} in a group, but worker {} {}", m.position().number(),
            m.position().completed, p.peer,
            first->second > plane ? "through its host" : "does, too, and others through their hosts");
}

// Records a violation for later: the caller takes any exception for a failure of the group.
void Simulation::transfers(const Process& p, const Room& room) {
  const int64_t generation = p.member->position().number(), step = p.member->position().step;
  const Room* const by = transferred_by_.try_emplace({generation, step}, &room).first->second;
  std::vector<PeerId> members;
  for (const GenerationMember& m : records_.at(generation).members) members.push_back(m.peer);
  const bool all = std::ranges::all_of(members, [&](PeerId peer) { return room.formed.contains(peer); });
  if (!planes_[{generation, step}].first) wrong_in_group_ = "it is the hosts' step";
  if (by != &room) wrong_in_group_ = "others are in " + by->name;
  if (members != room.members) wrong_in_group_ = "others are members of the generation";
  if (!all) wrong_in_group_ = "not all are in the group";
  if (!wrong_in_group_.empty())
    wrong_in_group_ = fmt::format("worker {} transfers in generation {}, step {}, group {}: {}", p.peer, generation,
                                  step, room.name, wrong_in_group_);
}

}  // namespace elinvar
