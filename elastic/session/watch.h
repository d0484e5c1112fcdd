#pragma once
// Decides what a worker does about its coordinator, without clock, network or disk, like the rest of the protocol
// (PROTOCOL.md, "The coordinator's own death"). Training needs no coordinator; joining, leaving and recovering do.
#include <optional>
#include <string>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct WatchOptions {
  // After this time without a message the worker is out of touch, as with a lost connection.
  Seconds silence = 4 * kHeartbeat;
  // While out of touch, the first worker in line takes over if the coordinator's beat count stood still for this long.
  Seconds takeover = 5;
  Seconds apart = 1;   // each next worker in line waits this much longer
  Seconds hold = 600;  // a worker that is out of touch for this long leaves
  int arrival = 0;     // the number of workers that asked this worker's first coordinator for the job before it did
};

class Watch {
 public:
  Watch(const WatchOptions& options, int64_t term, Seconds now) : options_(options) { follow(term, now); }

  // Follows the coordinator of this term from now on.
  void follow(int64_t term, Seconds now);
  int64_t term() const { return term_; }
  void heard(Seconds now);            // the coordinator sent any message
  void answered() { lost_ = false; }  // the coordinator answered a message of this worker
  void lost() { lost_ = true; }       // the connection to the coordinator is lost
  bool out_of_touch(Seconds now) const { return lost_ || now - heard_ > options_.silence; }
  // Returns whether to ask the coordinator for a sign of life, because nothing has come for a while.
  bool asks(Seconds now) const { return lost_ || now - heard_ > 0.6 * options_.silence; }

  // State read from the run directory: the newest term, its holder's beat count, and the number of members of the
  // newest generation.
  struct Observation {
    int64_t term = 0, beats = 0;
    int members = 0;
    bool operator==(const Observation&) const = default;
  };
  enum class Do { nothing, reconnect, follow, take_over, leave };
  struct Decision {
    Do what = Do::nothing;
    std::string reason = {};
  };
  // `observation` is set if this worker sees the directory. `rank` is its index among the members of its generation,
  // or -1 if it is not a member. Non-members queue behind all members in order of arrival: before the first generation,
  // and when all members are gone, only they can take over.
  Decision decide(const std::optional<Observation>& observation, int rank, Seconds now);

 private:
  WatchOptions options_;
  int64_t term_ = 0;
  Seconds heard_ = 0;
  bool lost_ = false;
  std::optional<Seconds> out_since_;
  std::optional<Observation> seen_;
  Seconds still_since_ = 0;
};

}  // namespace elinvar
