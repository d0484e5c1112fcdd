#include "elastic/protocol/recovery.h"

#include <algorithm>

namespace elinvar {

Recovery recover(const Roster& roster, const std::set<PeerId>& peers) {
  Recovery r;
  bool kept = false;  // the result of the newest step, by somebody
  for (const PeerId peer : peers) {
    const Worker& w = roster.at(peer);
    if (!w.fenced->at("loaded").get<bool>()) continue;
    r.completed[peer] = w.completed;
    if (w.completed > r.step) kept = false;
    r.step = std::max(r.step, w.completed);
    kept = kept || (w.fenced->at("keeps").get<bool>() && w.completed == r.step);
  }
  for (const auto& [peer, completed] : r.completed) {
    const Worker& w = roster.at(peer);
    const bool left = w.state == Worker::State::leaving && !w.fenced->at("active").get<bool>();
    if (w.fenced->contains("end")) r.end = w.fenced->at("end").get<int64_t>();
    if (left || completed < r.step - (kept ? 1 : 0)) continue;
    r.members.push_back(peer);
    if (completed < r.step) continue;
    if (w.fenced->contains("pace") && (!r.pace || w.fenced->at("certain").get<bool>()))
      r.pace = pace_from(w.fenced->at("pace"));
    for (const nlohmann::json& i : w.fenced->at("share"))
      r.kept[peer].push_back({i.at(0).get<int>(), i.at(1).get<int>()});
  }
  return r;
}

}  // namespace elinvar
