#pragma once
// What a worker does about its coordinator: without clock, network and disk, like the rest of the protocol
// (PROTOCOL.md, "The coordinator's own death"). Training needs none; joining, leaving and recovering do.
#include <optional>
#include <string>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct WatchOptions {
  Seconds silence = 4 * kHeartbeat;  // without a word from it: out of touch, as with a lost connection
  Seconds takeover = 5;  // then, if its count in the run directory stood still for so long, a worker takes over:
  Seconds apart = 1;     // the first in line, and each next one so much later
  Seconds hold = 600;    // out of touch for so long, a worker leaves
  int arrival = 0;       // how many workers had asked this worker's first coordinator for the job before it did
};

class Watch {
 public:
  Watch(const WatchOptions& options, int64_t term, Seconds now) : options_(options) { follow(term, now); }

  // It follows the coordinator of this term from now on.
  void follow(int64_t term, Seconds now);
  int64_t term() const { return term_; }
  void heard(Seconds now);            // anything at all from it
  void answered() { lost_ = false; }  // to what this worker said
  void lost() { lost_ = true; }       // the connection to it
  bool out_of_touch(Seconds now) const { return lost_ || now - heard_ > options_.silence; }
  // Whether a word from it is wanted, to know that it lives: nothing has come for a while.
  bool asks(Seconds now) const { return lost_ || now - heard_ > 0.6 * options_.silence; }

  // State read from the run directory: the newest term, its holder's beat count, and the number of members of the
  // newest generation.
  struct Sight {
    int64_t term = 0, beats = 0;
    int members = 0;
    bool operator==(const Sight&) const = default;
  };
  enum class Do { nothing, reconnect, follow, take_over, leave };
  struct Decision {
    Do what = Do::nothing;
    std::string reason = {};
  };
  // `sight`: set if this worker sees the directory. `rank`: among the members of its generation, or -1 if it is not a
  // member. Non-members queue behind all members in order of arrival: before the first generation, and when all members
  // are gone, only they can take over.
  Decision decide(const std::optional<Sight>& sight, int rank, Seconds now);

 private:
  WatchOptions options_;
  int64_t term_ = 0;
  Seconds heard_ = 0;
  bool lost_ = false;
  std::optional<Seconds> out_since_;
  std::optional<Sight> seen_;
  Seconds still_since_ = 0;
};

}  // namespace elinvar
