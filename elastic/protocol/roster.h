#pragma once
// The coordinator's knowledge of each worker that has introduced itself, and functions on the speeds of several
// workers.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/protocol/message.h"

namespace elinvar {

using Seconds = double;  // on any clock that does not jump

// The interval of a worker's heartbeats, in seconds. Limits of silence follow from it: after three intervals a worker
// counts as silent, after four a coordinator does, and a worker heard within one and a half counts as present.
inline constexpr Seconds kHeartbeat = 1;

struct Worker {
  enum class State {
    joining,    // has no usable state; state transfer not requested yet
    receiving,  // state transfer in progress
    ready,      // has caught up; not a member yet
    member,
    leaving,  // in no generation any more; stays while another worker needs its results
  };
  PeerId peer = 0;
  int id = 0;  // 0: not assigned yet
  std::string endpoint = {};
  WorkerInfo about = {};
  State state = State::joining;
  Seconds seen = 0;
  int64_t generation = 0, completed = 0;
  Work work = {};
  int64_t resident = 0;  // bytes of memory that its process uses; 0: not known yet
  int64_t gpu_peak = 0;  // bytes of tensors on its GPU, at most so far; 0: not known yet, or it computes on a CPU
  double speed = 0;      // virtual ranks a second; 0: not measured yet
  bool draining = false;
  bool blind = false;                           // cannot see the checkpoint with which the run begins
  bool warm = false;                            // has computed a rank gradient
  bool welcomed = false;                        // was told that it will receive the state
  std::optional<messages::Fenced> fenced = {};  // its answer to the newest fence
  int64_t fenced_at = 0;                        // its number of complete reductions when it answered
};
const char* name_of(Worker::State state);

using Roster = std::map<PeerId, Worker>;

// Returns the measured speeds of the members. A member without a measurement gets the mean of the others, or 1.
std::vector<double> speeds_of(std::span<const GenerationMember> members, const Roster& roster);
// Updates the speeds with a step in which member i took `seconds[i]` per virtual rank; 0: it had none.
void learn_speeds(std::span<const GenerationMember> members, const std::vector<double>& seconds, Roster& roster);

}  // namespace elinvar
