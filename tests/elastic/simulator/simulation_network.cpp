// The simulator: messages and connections between its processes.
#include "tests/elastic/simulator/simulation.h"

#include <algorithm>

#include "comm/packet.h"

namespace elinvar {

constexpr int64_t kReadAgain = 8;  // one message in this many is encoded and decoded as for the transport

Simulation::Node* Simulation::node(PeerId peer) {
  for (const auto& [term, head] : heads_)
    if (head->peer == peer) return head.get();
  const auto found = workers_.find(peer);
  return found == workers_.end() ? nullptr : found->second.get();
}

void Simulation::send(PeerId from, PeerId to, Message message) {
  message.sender = from;
  if (++result_.messages % kReadAgain == 0) message = message_of(packet_of(message, /*run=*/0));
  const Node *a = node(from), *b = node(to);
  const auto worker = workers_.find(from);
  if (worker != workers_.end() && workers_.contains(to)) {
    Process& p = *worker->second;
    const auto loses = [&](Lost what, bool is_such, int64_t* count) {
      if (!is_such || p.loses.erase(what) == 0) return false;
      if (count != nullptr) ++*count;
      return true;
    };
    const bool contribution = message.as<messages::Contribution>() != nullptr;
    const bool parameters = message.as<messages::WantParameters>() || message.as<messages::ParameterValues>() ||
                            message.as<messages::WantRows>() || message.as<messages::RowValues>();
    const MemberPosition& position = p.member->position();
    if (message.as<messages::BucketValues>() && p.member->shards().zero() > 2 &&
        message.step >= position.generation->first_step)
      violate("worker {} sends values after an update", from);
    if (loses(Lost::any, true, nullptr) || loses(Lost::open, p.open && contribution, &result_.lost_open) ||
        loses(Lost::values, message.as<messages::ShardValues>() != nullptr, &result_.lost_within) ||
        loses(Lost::input, message.as<messages::BoundaryValue>() != nullptr, &result_.lost_boundary) ||
        loses(Lost::digests, message.as<messages::GradientDigests>() != nullptr, &result_.lost_digests) ||
        loses(Lost::parameters, parameters, &result_.lost_parameters)) {
      log(fmt::format("{} from {} to {} is lost", message.payload.kind().name, from, to));
      return;
    }
  }
  if (!a || !b || !b->alive || !connected_.contains({from, to})) return;
  double arrival = now_ + uniform(0.0002, 0.004);
  if (uniform(0, 1) < 0.02) arrival += 0.05;
  if (a->far != b->far) arrival = std::max(arrival, whole_from_);
  arrival = std::max({arrival, a->cut_until, b->cut_until, last_arrival_[{from, to}] + 1e-6});
  last_arrival_[{from, to}] = arrival;
  at(arrival, [this, to, sent = now_, m = std::move(message)] { deliver(to, m, sent); });
}

void Simulation::deliver(PeerId to, const Message& message, double sent) {
  Node* target = node(to);
  if (!target || !target->alive) return;
  const auto broken = broken_.find({message.sender, to});
  if (broken != broken_.end() && sent <= broken->second) return;
  // If a process was cut off or died meanwhile, its messages in transit are lost, as with a broken connection.
  if (now_ < std::max(target->stalled_until, target->cut_until)) {
    at(std::max(target->stalled_until, target->cut_until) + 1e-5,
       [this, to, message, sent] { deliver(to, message, sent); });
    return;
  }
  if (auto* head = dynamic_cast<Head*>(target)) return receive(*head, message);
  Process& p = *workers_.at(to);
  const bool answer = message.as<messages::Heard>() != nullptr;
  if (!answer) p.idle_since = now_;
  if (message.sender == p.member->position().coordinator) {
    if (answer) p.watch->answered();
    p.watch->heard(now_);
  }
  if (const auto* other = message.as<messages::NewCoordinator>()) {
    if (!p.watch || other->term > p.watch->term()) follow(p, other->term);
  } else {
    p.member->receive(message);
    const auto* start = message.as<messages::Start>();
    // A start from a replaced coordinator is not obeyed.
    if (s_.adaptive && start && p.member->position().number() == start->record.number)
      p.history = histories_.at(start->record.scaling->history);
  }
  flush(p);
  advance(p);
}

void Simulation::act(PeerId self, std::vector<Action> actions) {
  for (Action& a : actions) {
    if (a.what == Action::What::connect) connected_.insert({self, a.peer});
    if (a.what == Action::What::disconnect) connected_.erase({self, a.peer});
    if (a.what == Action::What::send) send(self, a.peer, std::move(a.message));
  }
}

void Simulation::die(Node& dead, const std::string& how) {
  dead.alive = false;
  log(fmt::format("{} {}", how, dead.peer));
  // The last messages of a killed process may be lost with it.
  const bool silently = (how == "kill" || how == "coordinator dies") && pick(2) == 0;
  for (const auto& [from, to] : connected_)
    if (from == dead.peer && silently) broken_[{from, to}] = now_;
  for (const auto& [from, to] : connected_)
    if (to == dead.peer) at(now_ + uniform(0.001, 0.03), [this, from = from, to = to] { lose(from, to); });
}

// Ends the connection from one to the other and loses its messages in transit.
void Simulation::lose(PeerId watcher, PeerId peer) {
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
  if (p.watch && peer == p.member->position().coordinator) p.watch->lost();
  p.member->lost(peer, "connection closed");
  flush(p);
  advance(p);
}

}  // namespace elinvar
