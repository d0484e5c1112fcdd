#pragma once
// What the coordinator knows of each worker that has introduced itself, and the two questions that every decision asks
// about several of them.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/protocol/message.h"

namespace elinvar {

using Seconds = double;  // on any clock that does not jump

// How often a worker says that it lives. Times of silence are judged by it: after three a worker is silent, after
// four a coordinator, and who was heard within one and a half is there.
inline constexpr Seconds kHeartbeat = 1;

struct Worker {
  enum class State {
    joining,    // has no usable state; state transfer not requested yet
    receiving,  // state transfer in progress
    ready,      // has caught up; not a member yet
    member,
    leaving,  // in no generation any more; stays until nobody lacks what it has
  };
  PeerId peer = 0;
  int id = 0;  // 0: none yet
  std::string endpoint = {};
  WorkerInfo about = {};
  State state = State::joining;
  Seconds seen = 0;
  int64_t generation = 0, completed = 0;
  Work work = {};
  double speed = 0;  // virtual ranks a second; 0: not measured yet
  bool draining = false;
  bool blind = false;                           // does not see the checkpoint that the run is to begin with
  bool warm = false;                            // has computed a leaf
  std::optional<messages::Fenced> fenced = {};  // its answer to the newest fence that it was asked for
};
const char* name_of(Worker::State state);

using Roster = std::map<PeerId, Worker>;

// The measured speeds of members; who has none yet counts as the mean of the others, or as 1.
std::vector<double> speeds_of(std::span<const GenerationMember> members, const Roster& roster);
// Takes a step into account in which a virtual rank took each of the members so many seconds; 0: it had none.
void learn_speeds(std::span<const GenerationMember> members, const std::vector<double>& seconds, Roster& roster);

}  // namespace elinvar
