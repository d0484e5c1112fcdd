#include "tests/elastic_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <stdexcept>

#include "comm/reduction_tree.h"
#include "elastic/coordinator.h"
#include "elastic/member.h"
#include "tensor/check.h"
#include "tensor/state.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

float number(uint64_t key) { return static_cast<float>(static_cast<int64_t>(mix(key) >> 40) - (1 << 23)) * 0x1p-20f; }

// A network whose state is one number, and whose gradients depend on every bit of it.
Leaf make_leaf(uint64_t state, int64_t step, int vrank) {
  const uint64_t key = mix(state ^ mix(static_cast<uint64_t>(step * 1000 + vrank)));
  if (key % 7 == 0) return {};  // a short batch has no samples for this one
  Leaf leaf;
  leaf.gradients = {Tensor::from(std::vector<float>{number(key), number(key + 1), number(key + 2)}, {3}),
                    Tensor::from(std::vector<float>{number(key + 3), number(key + 4)}, {2})};
  leaf.terms = {Tensor::from(std::vector<float>{number(key + 5)}, {1})};
  leaf.facts = {.loss_sum = number(key + 6),
                .count = 1 + static_cast<int64_t>(key % 5),
                .correct = 1,
                .samples = 2,
                .batch = {key, static_cast<uint64_t>(step)}};
  return leaf;
}

uint64_t updated(uint64_t state, const Reduced& r) {
  uint64_t next = mix(state ^ std::bit_cast<uint64_t>(r.loss));
  for (const std::vector<Tensor>* tensors : {&r.gradients, &r.terms})
    for (const Tensor& t : *tensors)
      for (const float x : t.span<float>()) next = mix(next ^ std::bit_cast<uint32_t>(x));
  return next;
}

std::string facts_text(const Reduced& r) {
  Hasher hasher;
  for (const Tensor& t : r.gradients) hasher.add(digest(t));
  return fmt::format("{} {} {} {}", r.batch.hex(), std::bit_cast<uint64_t>(r.loss), r.count, hasher.digest().hex());
}

// What an undisturbed process computes: the state after each step, and each step's facts.
struct Reference {
  std::vector<uint64_t> state{1};
  std::vector<std::string> facts;

  explicit Reference(const Schedule& s) {
    for (int64_t step = 0; step < s.steps; ++step) {
      TreeFold fold(s.vranks);
      Reduced r;
      double loss = 0;
      Hasher batches;
      for (int v = 0; v < s.vranks; ++v) {
        Leaf leaf = make_leaf(state.back(), step, v);
        batches.add(leaf.facts.batch);
        loss += leaf.facts.loss_sum;
        r.count += leaf.facts.count;
        std::vector<Tensor> values = leaf.gradients;
        values.insert(values.end(), leaf.terms.begin(), leaf.terms.end());
        fold.add(v, std::move(values));
      }
      r.batch = batches.digest();
      r.loss = loss / static_cast<double>(r.count);
      std::vector<Tensor> root = fold.take_root();
      for (size_t i = 0; i < root.size(); ++i)
        if (i < 2) r.gradients.push_back(mul(root[i], 1.0 / static_cast<double>(r.count)));
        else r.terms.push_back(root[i]);
      facts.push_back(facts_text(r));
      state.push_back(updated(state.back(), r));
    }
  }
};

class Simulation final : public CoordinatorWorld {
 public:
  explicit Simulation(const Schedule& schedule) : s_(schedule), random_(schedule.seed), reference_(schedule) {}

  SimulationResult run() {
    try {
      start_coordinator(0);
      for (int i = 0; i < s_.initial_workers; ++i) add_worker();
      for (int i = 0; i < s_.faults; ++i)
        at(uniform(0.0, 1.0 + 0.12 * static_cast<double>(s_.steps)), [this] { fault(); });
      at(kFaultsEnd, [this] { mend(); });
      while (!events_.empty() && !done_) {
        const Event event = events_.top();
        events_.pop();
        if (result_.messages > 300000) violate("{} messages: {}", result_.messages, where());
        if (event.time > kDeadline) violate("no end in {} simulated seconds: {}", kDeadline, where());
        now_ = event.time;
        event.what();
      }
      if (!done_) violate("nothing happens any more: {}", where());
    } catch (const std::exception& error) {
      result_.violation = fmt::format("t={:.3f}: {}", now_, error.what());
    }
    result_.seconds = now_;
    return std::move(result_);
  }

 private:
  static constexpr double kFaultsEnd = 8, kDeadline = 200;
  static constexpr double kHeartbeat = 0.5, kTick = 0.1;

  struct Event {
    double time;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::tie(other.time, other.order) < std::tie(time, order); }
  };

  struct Node {
    bool alive = true;
    double stalled_until = 0;  // a stopped process: it does nothing until then
    double cut_until = 0;      // what it sends and is sent arrives only then
  };

  struct Process : Node {
    std::unique_ptr<Member> member;
    uint64_t state = 1;
    bool left = false;
    bool busy = false;  // computing, so that the loop goes on by itself
    PeerId peer = 0;
    bool sees_coordinator = false;
    double leaf_seconds = 0.05;
  };

  struct Checkpoint {
    int parts = 0;
    std::vector<uint64_t> states;
  };

  template <class... Args>
  [[noreturn]] void violate(fmt::format_string<Args...> text, Args&&... args) {
    throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
  }
  void log(const std::string& text) {
    if (result_.log.size() < 5000) result_.log.push_back(fmt::format("{:8.3f} {}", now_, text));
  }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  void at(double time, std::function<void()> what) { events_.push({std::max(time, now_), order_++, std::move(what)}); }

  std::string where() {
    std::string text = coordinator_ ? coordinator_->status(now_).dump() : "no coordinator";
    for (const auto& [peer, p] : workers_)
      if (p->alive)
        text +=
            fmt::format("\n  {}: generation {} step {} completed {} active {} fenced {} next {} busy {} early {}", peer,
                        p->member->generation(), p->member->step(), p->member->completed(), p->member->active(),
                        p->member->fenced(), static_cast<int>(p->member->next()), p->busy, p->member->early());
    return text;
  }

  // --- The network: in order between two processes, with a delay of its own for each message.

  Node* node(PeerId peer) {
    if (peer == coordinator_peer_) return &coordinator_node_;
    const auto found = workers_.find(peer);
    return found == workers_.end() ? nullptr : found->second.get();
  }

  void send(PeerId from, PeerId to, Message message) {
    message.sender = from;
    ++result_.messages;
    const Node *a = node(from), *b = node(to);
    if (!a || !b || !b->alive || !connected_.contains({from, to})) return;
    double arrival = now_ + uniform(0.0002, 0.004);
    if (uniform(0, 1) < 0.02) arrival += 0.05;
    arrival = std::max({arrival, a->cut_until, b->cut_until, last_arrival_[{from, to}] + 1e-6});
    last_arrival_[{from, to}] = arrival;
    at(arrival, [this, to, m = std::move(message)] { deliver(to, m); });
  }

  void deliver(PeerId to, const Message& message) {
    Node* target = node(to);
    if (!target || !target->alive) return;
    // A process that was cut off or died while this was on its way takes it along, as a broken connection does.
    if (now_ < std::max(target->stalled_until, target->cut_until)) {
      at(std::max(target->stalled_until, target->cut_until) + 1e-5, [this, to, message] { deliver(to, message); });
      return;
    }
    if (to == coordinator_peer_) {
      if (message.kind == "saved") checkpoint_part(message);
      else coordinator_->receive(message, now_);
      flush_coordinator();
    } else {
      Process& p = *workers_.at(to);
      p.member->receive(message);
      flush(p);
      advance(p);
    }
  }

  void act(PeerId self, std::vector<Action> actions) {
    for (Action& a : actions) {
      if (a.what == Action::What::connect) connected_.insert({self, a.peer});
      if (a.what == Action::What::disconnect) connected_.erase({self, a.peer});
      if (a.what == Action::What::send) send(self, a.peer, std::move(a.message));
    }
  }

  void die(PeerId peer, const std::string& how) {
    Node& dead = *node(peer);
    dead.alive = false;
    log(fmt::format("{} {}", how, peer));
    for (const auto& [from, to] : connected_) {
      if (to != peer) continue;
      at(now_ + uniform(0.001, 0.03), [this, watcher = from, peer] {
        Node* n = node(watcher);
        if (!n || !n->alive || now_ < n->stalled_until || !connected_.contains({watcher, peer})) return;
        connected_.erase({watcher, peer});
        if (watcher == coordinator_peer_) {
          coordinator_->lost(peer, "connection closed", now_);
          flush_coordinator();
        } else {
          Process& p = *workers_.at(watcher);
          p.member->lost(peer, "connection closed");
          flush(p);
          advance(p);
        }
      });
    }
  }

  // --- The coordinator's process.

  void start_coordinator(double delay) {
    at(now_ + delay, [this] {
      coordinator_peer_ = next_peer_++;
      coordinator_node_ = {};
      bool alive = false;
      for (const auto& [peer, p] : workers_) alive = alive || (p->alive && p->member->active());
      std::optional<Generation> newest;
      if (!records_.empty()) newest = records_.rbegin()->second;
      coordinator_ = std::make_unique<Coordinator>(CoordinatorOptions{.self = coordinator_peer_,
                                                                      .steps = s_.steps,
                                                                      .initial_workers = s_.initial_workers,
                                                                      .min_workers = s_.min_workers,
                                                                      .plan = {.vranks = s_.vranks},
                                                                      .heartbeat_timeout = 2,
                                                                      .start_timeout = 3,
                                                                      .gather_timeout = 2,
                                                                      .redeal_every = 0.5},
                                                   *this, saved_step_, newest, alive, now_);
      log(fmt::format("coordinator {} starts at {} records, members alive: {}", coordinator_peer_, records_.size(),
                      alive));
      tick(coordinator_peer_);
      for (const auto& [peer, p] : workers_) introduce(peer, uniform(0.01, 0.3));
    });
  }

  void introduce(PeerId peer, double delay) {
    at(now_ + delay, [this, peer] {
      Process& p = *workers_.at(peer);
      if (!p.alive || !coordinator_ || !coordinator_node_.alive) return;
      if (now_ < p.stalled_until) return introduce(peer, p.stalled_until - now_ + 0.01);
      connected_.insert({peer, coordinator_peer_});
      p.member->introduce(coordinator_peer_, {{"endpoint", "sim"}});
      flush(p);
    });
  }

  void tick(PeerId self) {
    if (self != coordinator_peer_ || !coordinator_node_.alive || done_) return;
    if (now_ >= std::max(coordinator_node_.stalled_until, coordinator_node_.cut_until)) {
      coordinator_->tick(now_);
      flush_coordinator();
    }
    at(now_ + kTick, [this, self] { tick(self); });
  }

  void flush_coordinator() {
    act(coordinator_peer_, coordinator_->take_actions());
    if (!coordinator_->ending() || !coordinator_node_.alive) return;
    const auto& ending = *coordinator_->ending();
    if (ending.what == "superseded") {
      log("superseded");
      coordinator_node_.alive = false;
      start_coordinator(0.2);
      return;
    }
    const bool nobody = ending.what == "failed" && ending.reason.find("no worker is left") != std::string::npos;
    if (nobody || (ending.what == "stopped" && ending.reason == "every worker leaves")) {
      // Everyone is gone: a person resumes with new workers, from the newest checkpoint.
      log("all gone, resumed from step " + std::to_string(saved_step_));
      coordinator_node_.alive = false;
      start_coordinator(0.1);
      for (int i = 0; i < s_.initial_workers; ++i) add_worker();
      return;
    }
    if (ending.what != "finished") violate("the job ended: {} {}", ending.what, ending.reason);
    for (int64_t step = 0; step < s_.steps; ++step)
      if (step >= static_cast<int64_t>(ledger_.size()) || ledger_[static_cast<size_t>(step)].empty())
        violate("step {} is not in the ledger", step);
    if (saved_step_ != s_.steps) violate("the last checkpoint is of step {}", saved_step_);
    done_ = true;
  }

  bool create(const Generation& g) override {
    if (records_.contains(g.number)) return false;
    int covered = 0, first = 0;
    for (const GenerationMember& m : g.members) {
      covered += total(m.share);
      first += total(m.first_share);
    }
    if (covered != s_.vranks || first != s_.vranks)
      violate("generation {} deals {} and {} virtual ranks", g.number, covered, first);
    records_[g.number] = g;
    result_.generations = static_cast<int>(records_.size());
    return true;
  }

  int64_t facts(int64_t step, const Json& facts) override {
    const std::string text = facts.at("text").get<std::string>();
    if (step < s_.steps) {
      if (text != reference_.facts[static_cast<size_t>(step)]) violate("step {} has other facts: {}", step, text);
      ledger_.resize(std::max(ledger_.size(), static_cast<size_t>(step) + 1));
      ledger_[static_cast<size_t>(step)] = text;
    }
    int64_t on_file = -1;
    while (on_file + 1 < static_cast<int64_t>(ledger_.size()) && !ledger_[static_cast<size_t>(on_file) + 1].empty())
      ++on_file;
    return on_file;
  }

  void event(const std::string& name, const Json& fields) override { log(name + " " + fields.dump()); }
  std::string refuse(const Json&) override { return ""; }

  void checkpoint_part(const Message& m) {
    const int64_t step = m.step;
    Checkpoint& c = pending_[{m.generation, step}];
    c.parts = m.body.at("parts").get<int>();
    c.states.push_back(m.body.at("state").get<uint64_t>());
    if (static_cast<int>(c.states.size()) < c.parts) return;
    for (const uint64_t state : c.states)
      if (state != reference_.state[static_cast<size_t>(step)])
        violate("a checkpoint of step {} holds another state", step);
    saved_step_ = std::max(saved_step_, step);
    coordinator_->checkpoint_committed(step, now_);
  }

  // --- The workers' processes.

  void add_worker() {
    const PeerId peer = next_peer_++;
    auto p = std::make_unique<Process>();
    p->peer = peer;
    p->leaf_seconds = uniform(0.01, 0.1);
    p->member = std::make_unique<Member>(MemberOptions{.self = peer,
                                                       .endpoint = "sim",
                                                       .vranks = s_.vranks,
                                                       .steps = s_.steps,
                                                       .bucket_elements = 2,
                                                       .checkpoint_every = 3,
                                                       .state_digest_every = 2});
    workers_[peer] = std::move(p);
    log(fmt::format("worker {} starts", peer));
    introduce(peer, uniform(0.01, 0.1));
    heartbeat(peer);
  }

  void heartbeat(PeerId peer) {
    at(now_ + kHeartbeat, [this, peer] {
      Process& p = *workers_.at(peer);
      if (!p.alive) return;
      if (now_ >= p.stalled_until) {
        if (p.member->coordinator_lost() && coordinator_node_.alive) introduce(peer, 0.01);
        p.member->heartbeat(Json::object());
        flush(p);
      }
      heartbeat(peer);
    });
  }

  void flush(Process& p) {
    act(p.peer, p.member->take_actions());
    for (const StatePart& part : p.member->take_parts()) {
      if (p.state != reference_.state[static_cast<size_t>(std::min(part.step, s_.steps))])
        violate("worker {} copies another state than that of step {}", p.peer, part.step);
      Message m{.kind = part.to == 0 ? "saved" : "state", .generation = p.member->generation(), .step = part.step};
      m.body = {{"part", part.part}, {"parts", part.parts},     {"last", true},
                {"state", p.state},  {"attempt", part.attempt}, {"facts", part.facts}};
      deliver_part(p.peer, part.to, uniform(0.001, 0.1), m);
    }
    if (p.member->outcome() && p.alive) {
      if (p.member->outcome()->what == "refused" || p.member->outcome()->what == "expelled")
        log(fmt::format("{}: {}", p.peer, p.member->outcome()->reason));
      p.left = p.member->outcome()->what == "left";
      die(p.peer, p.member->outcome()->what);
    }
  }

  // A part is written, or on its way, for a while.
  void deliver_part(PeerId peer, PeerId to, double delay, const Message& m) {
    at(now_ + delay, [this, peer, to, m] {
      Process& from = *workers_.at(peer);
      if (!from.alive && !from.left) return;  // who leaves finishes what it writes
      if (now_ < from.stalled_until) return deliver_part(peer, to, from.stalled_until - now_ + 1e-4, m);
      send(peer, to == 0 ? coordinator_peer_ : to, m);
    });
  }

  // Runs something on the worker's main thread after a while, unless it is gone by then; while it is stopped, later.
  void later(Process& p, double delay, std::function<void(Process&)> what) {
    p.busy = true;
    at(now_ + delay, [this, peer = p.peer, what = std::move(what)] {
      Process& q = *workers_.at(peer);
      if (!q.alive) return;
      if (now_ < q.stalled_until) return later(q, q.stalled_until - now_ + 1e-4, what);
      q.busy = false;
      what(q);
      flush(q);
      if (q.alive) advance(q);
    });
  }

  // The training loop, as far as it can go now.
  void advance(Process& p) {
    if (!p.alive || p.busy || now_ < p.stalled_until) return;
    Member& m = *p.member;
    if (m.active() && p.state != reference_.state[static_cast<size_t>(std::min(m.step(), s_.steps))])
      violate("worker {} has another state after step {}", p.peer, m.step());
    switch (m.reduce()) {
      case Member::Progress::complete:
        flush(p);
        return later(p, uniform(0.001, 0.02), [this](Process& q) { update(q); });
      case Member::Progress::waiting:
        flush(p);
        return;
      case Member::Progress::abandoned:
        break;
    }
    const Member::Next next = m.next();
    flush(p);
    if (!p.alive) return;
    if (next == Member::Next::load) return load(p);
    if (next == Member::Next::copy) {
      if (m.knows_layout()) {
        if (m.reduce() == Member::Progress::complete) later(p, uniform(0.001, 0.02), [this](Process& q) { update(q); });
        return;
      }
      return later(p, 0.05, [this](Process& q) {
        for (int v = 0; !q.member->knows_layout(); ++v) {
          const Leaf leaf = make_leaf(q.state, 0, v);
          if (!leaf.gradients.empty()) q.member->learn_layout(leaf);
        }
      });
    }
    if (next != Member::Next::leaves) return;
    const std::vector<int> todo = m.todo();
    if (!todo.empty()) {
      const int64_t step = m.step();
      return later(p, p.leaf_seconds * uniform(0.8, 1.2), [this, step, v = todo[0]](Process& q) {
        q.member->add(step, v, step < s_.steps ? make_leaf(q.state, step, v) : Leaf{}, q.leaf_seconds);
      });
    }
    if (!m.knows_layout())
      for (int v = 0; !m.knows_layout(); ++v) {
        const Leaf leaf = make_leaf(p.state, 0, v);
        if (!leaf.gradients.empty()) m.learn_layout(leaf);
      }
    std::optional<Digest> state;
    if (m.digest_due()) state = Digest{p.state, 7};
    m.contribute(state);
    flush(p);
    later(p, 0, [](Process&) {});
  }

  void update(Process& p) {
    const Reduced r = p.member->take_reduced();
    if (!p.member->contradiction().empty()) violate("states differ: {}", p.member->contradiction());
    Json facts = {{"text", ""}};
    if (p.member->step() < s_.steps) {
      facts["text"] = facts_text(r);
      p.state = updated(p.state, r);
    }
    p.member->advance(facts);
  }

  void load(Process& p) {
    const Member::Load load = p.member->take_load();
    p.state = load.restore ? reference_.state[static_cast<size_t>(*load.restore)]
                           : load.messages.at(0).body.at("state").get<uint64_t>();
    later(p, uniform(0.01, 0.2), [load](Process& q) { q.member->loaded(load); });
  }

  // --- Fate.

  Process* any_worker() {
    std::vector<Process*> alive;
    for (const auto& [peer, p] : workers_)
      if (p->alive) alive.push_back(p.get());
    return alive.empty() ? nullptr : alive[static_cast<size_t>(pick(static_cast<int>(alive.size())))];
  }

  void fault() {
    Process* p = any_worker();
    switch (pick(8)) {
      case 0:
      case 1:
        if (s_.kills && p) die(p->peer, "kill");
        break;
      case 2:
        if (s_.joins) add_worker();
        break;
      case 3:
        if (s_.joins) add_worker();
        if (s_.joins) add_worker();
        break;
      case 4:
        if (s_.drains && p) {
          log(fmt::format("drain {}", p->peer));
          p->member->drain();
          flush(*p);
        }
        break;
      case 5:
        if (s_.stalls && p) {
          p->stalled_until = now_ + uniform(0.05, 5);
          log(fmt::format("stall {} until {:.3f}", p->peer, p->stalled_until));
          at(p->stalled_until + 1e-4, [this, peer = p->peer] { advance(*workers_.at(peer)); });
        }
        break;
      case 6:
        if (s_.coordinator_dies && coordinator_node_.alive && coordinator_) {
          die(coordinator_peer_, "coordinator dies");
          start_coordinator(uniform(0.1, 1.5));
        }
        break;
      case 7:
        if (s_.cuts && p) {
          p->cut_until = now_ + uniform(0.05, 5);
          log(fmt::format("cut {} until {:.3f}", p->peer, p->cut_until));
        }
        break;
    }
  }

  // No more faults: from here on the job must come to its end.
  void mend() {
    if (!coordinator_node_.alive) return at(now_ + 1, [this] { mend(); });
    for (int i = 0; i < s_.min_workers; ++i) add_worker();
    at(now_ + 20, [this] {
      int alive = 0;
      for (const auto& [peer, p] : workers_) alive += p->alive;
      if (!done_ && alive < s_.min_workers)
        for (int i = alive; i < s_.min_workers; ++i) add_worker();
    });
  }

  Schedule s_;
  std::mt19937_64 random_;
  Reference reference_;
  SimulationResult result_;
  double now_ = 0;
  int64_t order_ = 0;
  bool done_ = false;
  std::priority_queue<Event> events_;

  PeerId next_peer_ = 1, coordinator_peer_ = 0;
  Node coordinator_node_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<PeerId, std::unique_ptr<Process>> workers_;
  std::set<std::pair<PeerId, PeerId>> connected_;
  std::map<std::pair<PeerId, PeerId>, double> last_arrival_;
  std::map<int64_t, Generation> records_;
  std::map<std::pair<int64_t, int64_t>, Checkpoint> pending_;
  std::vector<std::string> ledger_;
  int64_t saved_step_ = 0;
};

}  // namespace

SimulationResult simulate(const Schedule& schedule) { return Simulation(schedule).run(); }

}  // namespace elinvar
