#include "tests/elastic_simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <stdexcept>

#include "elastic/coordinator.h"
#include "elastic/member.h"
#include "elastic/watch.h"
#include "tests/elastic_reference.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

class Simulation {
 public:
  explicit Simulation(const Schedule& schedule)
      : s_(schedule), random_(schedule.seed), reference_(schedule.vranks, schedule.steps) {}

  SimulationResult run() {
    try {
      resume();
      for (int i = 0; i < s_.faults; ++i)
        at(uniform(0.0, 1.0 + 0.12 * static_cast<double>(s_.steps)), [this] { fault(); });
      if (s_.hang_at >= 0) at(s_.hang_at, [this] { hang(*workers_.begin()->second); });
      at(kFaultsEnd, [this] { mend(); });
      at(1, [this] { look_after(); });
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
  static constexpr double kHeartbeat = 0.5, kTick = 0.1, kBeat = 0.3;
  static constexpr WatchOptions kWatch{.silence = 1.2, .takeover = 1, .apart = 0.3, .hold = 8};

  struct Event {
    double time;
    int64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const { return std::tie(other.time, other.order) < std::tie(time, order); }
  };

  struct Node {
    PeerId peer = 0;
    bool alive = true;
    bool far = false;          // on the other side of a network that is cut in two
    double stalled_until = 0;  // a stopped process: it does nothing until then
    double cut_until = 0;      // what it sends and is sent arrives only then
    virtual ~Node() = default;
  };

  struct Process : Node {
    std::unique_ptr<Member> member;
    std::optional<Watch> watch;  // once there was a coordinator to introduce itself to
    bool sees_directory = true;
    uint64_t state = 1;
    bool left = false;
    bool busy = false;  // computing, so that the loop goes on by itself
    bool hung = false;  // or never will, though heartbeats go on
    double busy_since = 0;
    double leaf_seconds = 0.05;
  };

  struct Checkpoint {
    int parts = 0;
    std::vector<uint64_t> states;
  };

  // A coordinator's process; what it has not written down dies with it.
  struct Head final : Node, CoordinatorWorld {
    explicit Head(Simulation& simulation) : sim(simulation) {}
    Simulation& sim;
    int64_t tenure = 0;
    std::unique_ptr<Coordinator> coordinator;
    double beat_at = 0;
    std::map<int64_t, std::string> waiting;
    std::map<std::pair<int64_t, int64_t>, Checkpoint> saving;

    bool create(const Generation& g) override { return sim.create(g); }
    bool superseded() override { return sim.heads_.rbegin()->first > tenure; }
    std::optional<int64_t> facts(int64_t step, const Json& facts) override { return sim.facts(*this, step, facts); }
    int64_t restart() override { return sim.saved_step_; }
    void put_out(PeerId out) override { sim.put_out(out); }
    void event(const std::string& name, const Json& fields) override { sim.log(name + " " + fields.dump()); }
    std::string refuse(const Json&) override { return ""; }
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
    std::string text = fmt::format("{} steps in the ledger, checkpoint of step {}", ledger_.size(), saved_step_);
    for (const auto& [tenure, head] : heads_)
      if (head->alive) text += fmt::format("\n  tenure {}: {}", tenure, head->coordinator->status(now_).dump());
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
    for (const auto& [tenure, head] : heads_)
      if (head->peer == peer) return head.get();
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
    if (a->far != b->far) arrival = std::max(arrival, whole_from_);
    arrival = std::max({arrival, a->cut_until, b->cut_until, last_arrival_[{from, to}] + 1e-6});
    last_arrival_[{from, to}] = arrival;
    at(arrival, [this, to, sent = now_, m = std::move(message)] { deliver(to, m, sent); });
  }

  void deliver(PeerId to, const Message& message, double sent) {
    Node* target = node(to);
    if (!target || !target->alive) return;
    const auto broken = broken_.find({message.sender, to});
    if (broken != broken_.end() && sent <= broken->second) return;
    // A process that was cut off or died while this was on its way takes it along, as a broken connection does.
    if (now_ < std::max(target->stalled_until, target->cut_until)) {
      at(std::max(target->stalled_until, target->cut_until) + 1e-5,
         [this, to, message, sent] { deliver(to, message, sent); });
      return;
    }
    if (auto* head = dynamic_cast<Head*>(target)) {
      if (message.kind == "saved") checkpoint_part(*head, message);
      else head->coordinator->receive(message, now_);
      flush(*head);
      return;
    }
    Process& p = *workers_.at(to);
    if (message.sender == p.member->coordinator()) p.watch->heard(now_);
    if (message.kind == "coordinator") {
      const int64_t tenure = message.body.at("tenure").get<int64_t>();
      if (!p.watch || tenure > p.watch->tenure()) follow(p, tenure);
    } else {
      p.member->receive(message);
    }
    flush(p);
    advance(p);
  }

  void act(PeerId self, std::vector<Action> actions) {
    for (Action& a : actions) {
      if (a.what == Action::What::connect) connected_.insert({self, a.peer});
      if (a.what == Action::What::disconnect) connected_.erase({self, a.peer});
      if (a.what == Action::What::send) send(self, a.peer, std::move(a.message));
    }
  }

  void die(Node& dead, const std::string& how) {
    dead.alive = false;
    log(fmt::format("{} {}", how, dead.peer));
    // What a killed process said last may be lost with it.
    const bool silently = (how == "kill" || how == "coordinator dies") && pick(2) == 0;
    for (const auto& [from, to] : connected_)
      if (from == dead.peer && silently) broken_[{from, to}] = now_;
    for (const auto& [from, to] : connected_)
      if (to == dead.peer) at(now_ + uniform(0.001, 0.03), [this, from = from, to = to] { lose(from, to); });
  }

  // The connection from one to the other ends, and with it what is on its way.
  void lose(PeerId watcher, PeerId peer) {
    Node* n = node(watcher);
    if (!n || !n->alive || !connected_.contains({watcher, peer})) return;
    if (now_ < n->stalled_until) return at(n->stalled_until + 1e-4, [this, watcher, peer] { lose(watcher, peer); });
    connected_.erase({watcher, peer});
    broken_[{watcher, peer}] = now_;
    if (auto* head = dynamic_cast<Head*>(n)) {
      head->coordinator->lost(peer, "connection closed", now_);
      return flush(*head);
    }
    Process& p = *workers_.at(watcher);
    if (p.watch && peer == p.member->coordinator()) p.watch->lost();
    p.member->lost(peer, "connection closed");
    flush(p);
    advance(p);
  }

  // --- Coordinators.

  Head* head() {  // the newest that lives
    for (auto it = heads_.rbegin(); it != heads_.rend(); ++it)
      if (it->second->alive) return it->second.get();
    return nullptr;
  }

  void start_coordinator() {
    auto made = std::make_unique<Head>(*this);
    Head& h = *made;
    h.peer = next_peer_++;
    h.tenure = heads_.empty() ? 1 : heads_.rbegin()->first + 1;
    h.far = pick(2) == 1;
    Coordinator::Records records;
    for (const auto& [peer, p] : workers_)
      records.members_alive = records.members_alive || (p->alive && p->member->active());
    if (!records_.empty()) {
      records.newest = records_.rbegin()->second;
      if (records_.contains(records.newest->follows)) records.before = records_.at(records.newest->follows);
    }
    h.coordinator = std::make_unique<Coordinator>(CoordinatorOptions{.tenure = h.tenure,
                                                                     .endpoint = "sim",
                                                                     .steps = s_.steps,
                                                                     .initial_workers = s_.initial_workers,
                                                                     .min_workers = s_.min_workers,
                                                                     .plan = {.vranks = s_.vranks},
                                                                     .heartbeat_timeout = 2,
                                                                     .hang = {.floor = 1},
                                                                     .start_timeout = 3,
                                                                     .gather_timeout = 2,
                                                                     .redeal_every = 0.5},
                                                  h, saved_step_, records, now_);
    log(fmt::format("coordinator {} of tenure {} starts at {} records, members alive: {}", h.peer, h.tenure,
                    records_.size(), records.members_alive));
    heads_[h.tenure] = std::move(made);
    flush(h);
    tick(h);
  }

  void tick(Head& h) {
    if (!h.alive || done_) return;
    if (now_ >= std::max(h.stalled_until, h.cut_until)) {
      // It looks only now and then whether it has a successor.
      if (now_ >= h.beat_at) {
        h.beat_at = now_ + kBeat;
        ++beats_[h.tenure];
        if (h.superseded()) h.coordinator->superseded();
      }
      h.coordinator->tick(now_);
      flush(h);
    }
    at(now_ + kTick, [this, &h] { tick(h); });
  }

  void flush(Head& h) {
    act(h.peer, h.coordinator->take_actions());
    if (!h.coordinator->ending() || !h.alive) return;
    const auto& ending = *h.coordinator->ending();
    if (ending.what != "finished") {
      // Workers that it does not know of may go on without it; if nobody does, a person resumes.
      const bool stopped = ending.what == "stopped" && ending.reason == "every worker leaves";
      if (ending.what != "superseded" && !stopped && ending.reason.find("no worker is left") == std::string::npos)
        violate("the job ended: {} {}", ending.what, ending.reason);
      return die(h, ending.what);
    }
    if (static_cast<int64_t>(ledger_.size()) != s_.steps) violate("the ledger has {} steps", ledger_.size());
    if (saved_step_ != s_.steps) violate("the last checkpoint is of step {}", saved_step_);
    done_ = true;
  }

  bool create(const Generation& g) {
    if (records_.contains(g.number)) return false;
    int covered = 0, first = 0;
    for (const GenerationMember& m : g.members) {
      covered += total(m.share);
      first += total(m.first_share);
    }
    if (covered != s_.vranks || first != s_.vranks)
      violate("generation {} deals {} and {} virtual ranks", g.number, covered, first);
    records_[g.number] = g;
    result_.virtual_ranks.clear();
    for (const GenerationMember& m : g.members) result_.virtual_ranks.push_back(total(m.share));
    result_.generations = static_cast<int>(records_.size());
    return true;
  }

  std::optional<int64_t> facts(Head& h, int64_t step, const Json& facts) {
    if (h.superseded()) return std::nullopt;
    const std::string text = facts.at("text").get<std::string>();
    if (step < s_.steps) {
      if (text != reference_.facts[static_cast<size_t>(step)]) violate("step {} has other facts: {}", step, text);
      h.waiting[step] = text;
    }
    for (auto next = h.waiting.begin(); next != h.waiting.end(); next = h.waiting.erase(next)) {
      if (next->first > static_cast<int64_t>(ledger_.size())) break;
      if (next->first == static_cast<int64_t>(ledger_.size())) ledger_.push_back(next->second);
    }
    return static_cast<int64_t>(ledger_.size()) - 1;
  }

  void put_out(PeerId peer) {
    const Process& p = *workers_.at(peer);
    if (p.hung) result_.hang_lasted = now_ - p.busy_since;
  }

  void checkpoint_part(Head& h, const Message& m) {
    if (h.superseded()) return;
    const int64_t step = m.step;
    Checkpoint& c = h.saving[{m.generation, step}];
    c.parts = m.body.at("parts").get<int>();
    c.states.push_back(m.body.at("state").get<uint64_t>());
    if (static_cast<int>(c.states.size()) < c.parts) return;
    for (const uint64_t state : c.states)
      if (state != reference_.state[static_cast<size_t>(step)])
        violate("a checkpoint of step {} holds another state", step);
    saved_step_ = std::max(saved_step_, step);
    h.coordinator->checkpoint_committed(step, now_);
  }

  // --- The workers' processes.

  void add_worker() {
    const PeerId peer = next_peer_++;
    auto p = std::make_unique<Process>();
    p->peer = peer;
    p->far = pick(2) == 1;
    p->sees_directory = uniform(0, 1) < 0.7;
    p->leaf_seconds = workers_.size() < s_.leaf_seconds.size() ? s_.leaf_seconds[workers_.size()] : uniform(0.01, 0.1);
    p->member = std::make_unique<Member>(MemberOptions{.self = peer,
                                                       .endpoint = "sim",
                                                       .vranks = s_.vranks,
                                                       .steps = s_.steps,
                                                       .bucket_elements = 2,
                                                       .checkpoint_every = 3,
                                                       .state_digest_every = 2});
    log(fmt::format("worker {} starts{}", peer, p->sees_directory ? "" : ", without the directory"));
    workers_[peer] = std::move(p);
    join(peer);
    heartbeat(peer);
  }

  // It asks at the newest coordinator; a person tries again until one is there.
  void join(PeerId peer) {
    at(now_ + uniform(0.01, 0.1), [this, peer] {
      Process& p = *workers_.at(peer);
      if (!p.alive || p.watch) return;
      if (head()) follow(p, head()->tenure);
      else join(peer);
    });
  }

  void follow(Process& p, int64_t tenure) {
    const PeerId coordinator = heads_.at(tenure)->peer;
    if (!p.watch) p.watch.emplace(kWatch, tenure, now_);
    p.watch->follow(tenure, now_);
    connected_.insert({p.peer, coordinator});
    // Nobody listens there any more.
    if (!heads_.at(tenure)->alive) at(now_ + 0.01, [this, peer = p.peer, coordinator] { lose(peer, coordinator); });
    p.member->introduce(coordinator, {{"endpoint", "sim"}});
    flush(p);
  }

  bool sees_directory(const Process& p) const {
    return p.sees_directory && (now_ >= whole_from_ || directory_cut_ == 0 || (directory_cut_ == 2) == p.far);
  }

  void heartbeat(PeerId peer) {
    at(now_ + kHeartbeat, [this, peer] {
      Process& p = *workers_.at(peer);
      if (!p.alive) return;
      if (now_ >= p.stalled_until) {
        p.member->heartbeat(!p.busy ? Json::object()
                                    : Json{{"at", "work"}, {"lasts", now_ - p.busy_since}, {"usual", 0.05}});
        flush(p);
        if (p.alive && p.watch && p.watch->out_of_touch(now_)) seek(p);
      }
      heartbeat(peer);
    });
  }

  void seek(Process& p) {
    std::optional<Watch::Sight> sight;
    const int64_t newest = heads_.rbegin()->first;
    if (sees_directory(p)) sight = Watch::Sight{newest, beats_[newest]};
    const Watch::Decision decision = p.watch->decide(sight, p.member->index(), now_);
    if (decision.what == Watch::Do::leave) return die(p, "without a coordinator leaves");
    if (decision.what == Watch::Do::follow) return follow(p, newest);
    if (decision.what != Watch::Do::take_over) return;
    log(fmt::format("worker {} takes over from tenure {}: {}", p.peer, newest, decision.reason));
    at(now_ + uniform(0.05, 0.5), [this, newest] {
      if (heads_.rbegin()->first == newest) start_coordinator();
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
      die(p, p.member->outcome()->what);
    }
  }

  // A part is written, or on its way, for a while.
  void deliver_part(PeerId peer, PeerId to, double delay, const Message& m) {
    at(now_ + delay, [this, peer, to, m] {
      Process& from = *workers_.at(peer);
      if (!from.alive && !from.left) return;  // who leaves finishes what it writes
      if (now_ < from.stalled_until) return deliver_part(peer, to, from.stalled_until - now_ + 1e-4, m);
      send(peer, to == 0 ? from.member->coordinator() : to, m);
    });
  }

  // --- A worker's main thread: the training loop.

  // Runs something after a while, unless the worker is gone by then; while it is stopped, later.
  void later(Process& p, double delay, std::function<void(Process&)> what) {
    if (!p.busy) p.busy_since = now_;
    p.busy = true;
    at(now_ + delay, [this, peer = p.peer, what = std::move(what)] {
      Process& q = *workers_.at(peer);
      if (!q.alive || q.hung) return;
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
    Json facts = {{"text", ""}, {"seconds", r.seconds}};
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

  template <class Nodes>
  Node* any_of(const Nodes& nodes) {
    std::vector<Node*> alive;
    for (const auto& [key, n] : nodes)
      if (n->alive) alive.push_back(n.get());
    return alive.empty() ? nullptr : alive[static_cast<size_t>(pick(static_cast<int>(alive.size())))];
  }

  void stall(Node& n, double seconds) {
    n.stalled_until = std::max(n.stalled_until, now_ + seconds);
    log(fmt::format("stall {} until {:.3f}", n.peer, n.stalled_until));
    if (workers_.contains(n.peer)) at(n.stalled_until + 1e-4, [this, peer = n.peer] { advance(*workers_.at(peer)); });
  }

  void hang(Process& p) {
    p.hung = p.busy = true;
    p.busy_since = now_;
    log(fmt::format("hang {}", p.peer));
  }

  // Nothing passes between the two sides. The run directory is on both, or on one of them only: then who is on the
  // other sees nothing of it, and a coordinator there waits for it.
  void partition(double seconds) {
    whole_from_ = now_ + seconds;
    directory_cut_ = pick(3);
    log(fmt::format("cut in two until {:.3f}, directory {}", whole_from_, directory_cut_));
    for (const auto& [tenure, h] : heads_)
      if (h->alive && directory_cut_ > 0 && (directory_cut_ == 1) == h->far) stall(*h, seconds);
    if (pick(2) == 0) return;
    // It lasts so long that connections end.
    const double when = now_ + uniform(0.2, 1) * seconds;
    for (const auto& [from, to] : connected_)
      if (node(from)->far != node(to)->far)
        at(when + uniform(0, 0.2), [this, from = from, to = to] { lose(from, to); });
  }

  void fault() {
    Node* worker = any_of(workers_);
    Node* coordinator = any_of(heads_);
    switch (pick(12)) {
      case 0:
      case 1:
        if (s_.kills && worker) die(*worker, "kill");
        break;
      case 2:
        if (s_.joins) add_worker();
        break;
      case 3:
        if (s_.joins) add_worker();
        if (s_.joins) add_worker();
        break;
      case 4:
        if (s_.drains && worker) {
          log(fmt::format("drain {}", worker->peer));
          Process& p = *workers_.at(worker->peer);
          p.member->drain();
          flush(p);
        }
        break;
      case 5:
        if (s_.stalls && worker) stall(*worker, uniform(0.05, 5));
        break;
      case 6:  // and somebody resumes at once,
      case 7:  // or nobody: a worker takes over
        if (!s_.coordinator_dies || !coordinator) break;
        die(*coordinator, "coordinator dies");
        if (pick(2) == 0)
          at(now_ + uniform(0.1, 1.5), [this] {
            if (!head()) start_coordinator();
          });
        break;
      case 8:
        if (s_.stalls && coordinator) stall(*coordinator, uniform(0.05, 8));
        break;
      case 9:
        if (s_.cuts && worker) {
          worker->cut_until = now_ + uniform(0.05, 5);
          log(fmt::format("cut {} until {:.3f}", worker->peer, worker->cut_until));
        }
        break;
      case 10:
        if (s_.cuts && now_ >= whole_from_) partition(uniform(0.05, 6));
        break;
      case 11:
        if (s_.hangs && worker) hang(*workers_.at(worker->peer));
        break;
    }
  }

  // A person starts the job, or goes on with it after everyone is gone.
  void resume() {
    start_coordinator();
    for (int i = 0; i < s_.initial_workers; ++i) add_worker();
  }

  void look_after() {
    const bool any = std::any_of(workers_.begin(), workers_.end(),
                                 [](const auto& entry) { return entry.second->alive && entry.second->watch; });
    if (!head() && !any) {
      log("all gone, resumed from step " + std::to_string(saved_step_));
      resume();
    }
    at(now_ + 0.5, [this] { look_after(); });
  }

  // No more faults: from here on the job must come to its end.
  void mend() {
    if (!head()) return at(now_ + 1, [this] { mend(); });
    // One that hung alone, a person kills.
    for (const auto& [peer, p] : workers_)
      if (p->alive && p->hung) die(*p, "kill");
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

  PeerId next_peer_ = 1;
  std::map<PeerId, std::unique_ptr<Process>> workers_;
  std::set<std::pair<PeerId, PeerId>> connected_;
  std::map<std::pair<PeerId, PeerId>, double> last_arrival_, broken_;
  double whole_from_ = 0;  // until then the network is cut in two,
  int directory_cut_ = 0;  // and the directory can be seen by 0: both sides, 1: the near one, 2: the far one

  // The run directory.
  std::map<int64_t, std::unique_ptr<Head>> heads_;  // by tenure
  std::map<int64_t, int64_t> beats_;
  std::map<int64_t, Generation> records_;
  std::vector<std::string> ledger_;
  int64_t saved_step_ = 0;
};

}  // namespace

SimulationResult simulate(const Schedule& schedule) { return Simulation(schedule).run(); }

}  // namespace elinvar
