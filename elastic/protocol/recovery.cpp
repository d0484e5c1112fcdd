#include "elastic/protocol/recovery.h"

#include <algorithm>

namespace elinvar {

Recovery recovery_after(const Roster& roster, const std::set<PeerId>& peers) {
  Recovery r;
  bool kept = false;  // whether a worker still has the result of the newest step
  for (const PeerId peer : peers) {
    const Worker& w = roster.at(peer);
    if (!w.fenced->loaded) continue;
    r.completed[peer] = w.fenced_at;
    if (w.fenced_at > r.step) kept = false;
    r.step = std::max(r.step, w.fenced_at);
    kept = kept || (w.fenced->keeps && w.fenced_at == r.step);
  }
  for (const auto& [peer, completed] : r.completed) {
    const Worker& w = roster.at(peer);
    const messages::Fenced& answer = *w.fenced;
    const bool left = w.state == Worker::State::leaving && !answer.active;
    if (answer.end) r.end = answer.end;
    if (left || completed < r.step - (kept ? 1 : 0)) continue;
    // Those with the newest step may have replaced the values of the update before it.
    if (completed < r.step && answer.lacks_values) continue;
    r.members.push_back(peer);
    if (completed < r.step) continue;
    if (answer.scaling_state && (!r.scaling_state || answer.certain)) r.scaling_state = answer.scaling_state;
    r.kept[peer] = answer.share;
  }
  // The newest deal that any member knows to be committed: then all keepers have the state.
  const messages::HeldShards* newest = nullptr;
  for (const PeerId peer : r.members) {
    const std::optional<messages::HeldShards>& held = roster.at(peer).fenced->shards;
    if (held && !held->whole && (!newest || held->generation > newest->generation)) newest = &*held;
  }
  if (newest) {
    r.sharding.holders = newest->deal;
    r.sharding.zero_before = newest->zero;
  }
  r.sharding.whole = newest == nullptr;
  for (const PeerId peer : r.members)
    if (const auto& held = roster.at(peer).fenced->shards; !newest && held && held->whole) {
      r.restored.push_back(peer);
      r.sharding.zero_before = held->zero;
    }
  if (const std::optional<int> held = r.held_with())
    std::erase_if(r.members, [&](PeerId peer) {
      const Worker& w = roster.at(peer);
      return !w.fenced->active && form_of(w.about.zero) != form_of(*held);
    });
  return r;
}

}  // namespace elinvar
