#include "elastic/protocol/roster.h"

#include <algorithm>

namespace elinvar {

const char* name_of(Worker::State state) {
  constexpr const char* kNames[] = {"joining", "learning", "ready", "member", "leaving"};
  return kNames[static_cast<int>(state)];
}

std::vector<double> speeds_of(std::span<const GenerationMember> members, const Roster& roster) {
  std::vector<double> speeds;
  double sum = 0;
  int known = 0;
  for (const GenerationMember& m : members) {
    const auto worker = roster.find(m.peer);
    speeds.push_back(worker == roster.end() ? 0 : worker->second.speed);
    sum += speeds.back();
    known += speeds.back() > 0;
  }
  for (double& speed : speeds)
    if (speed == 0) speed = known > 0 ? sum / known : 1;
  return speeds;
}

void learn_speeds(std::span<const GenerationMember> members, const std::vector<double>& seconds, Roster& roster) {
  for (size_t i = 0; i < std::min(seconds.size(), members.size()); ++i) {
    const auto member = roster.find(members[i].peer);
    if (member == roster.end() || !(seconds[i] > 0)) continue;
    double& speed = member->second.speed;
    speed = speed == 0 ? 1 / seconds[i] : 0.7 * speed + 0.3 / seconds[i];
  }
}

}  // namespace elinvar
