#include "elastic/protocol/roster.h"

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

}  // namespace elinvar
