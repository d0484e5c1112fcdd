#pragma once
// Faults on purpose, for drills and tests (`train run --chaos SPEC`): which ones there are, and pure functions that
// decide when one happens. Whoever carries them out is another (tools/training/saboteur.h).
//
//   kill:worker=ID,step=N               SIGKILL to a worker while update N is made (the first is 1)
//   kill:coordinator,step=N             to the coordinator
//   kill:all,step=N                     to all workers at once
//   stall:worker=ID,step=N,seconds=S    SIGSTOP, and SIGCONT after S seconds
//   drain:worker=ID,step=N              SIGTERM: it is asked to leave
//   join:step=N                         one more worker is started
//   drop:worker=ID,step=N               the first message of this worker's part in reduction N is lost on its way,
//   where
//                                       that is made for the first time
//   flip:worker=ID,step=N,bit=B,what=W  a bit flips in this worker, in update N, and what is computed from there on is
//                                       wrong. W: "leaf" (the default): in the gradients of its first leaf, or in the
//                                       first gradient where they leave one by one; "input": in what that leaf is
//                                       computed from; "reduced": in the first sum that it adds up for all;
//                                       "parameter", "optimizer": in its state after the update. Bits are counted
//                                       through all tensors of that kind one after another, and again from the first
//   random:seed=N,rate=P                any of these to workers, at any moment, with probability P in each step
//
// Several are separated by ';'. Workers are called by the ids that `train ctl status` shows; 0 is whoever leads then.
// Drops and flips are known to the worker, who does them to itself (elastic/session/self_sabotage.h); they are never
// random. Random faults leave alive, and at work, one member that has the state at least, and start no more workers
// than there are places for among kMostRandomWorkers.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace elinvar {

inline constexpr size_t kMostRandomWorkers = 6;

struct Fault {
  enum class What { kill, stall, drain, join, drop, flip };
  enum class Whom { worker, coordinator, all };
  enum class Flips { leaf, input, reduced, parameter, optimizer };
  What what = What::kill;
  Whom whom = Whom::worker;
  int worker = 0;
  int64_t step = 1;
  double seconds = 0;  // of a stall
  int64_t bit = 0;     // of a flip,
  Flips flips = Flips::leaf;
};
const char* name_of(Fault::What what);
const char* name_of(Fault::Flips what);
inline bool by_worker(Fault::What what) { return what == Fault::What::drop || what == Fault::What::flip; }

struct RandomFaults {
  uint64_t seed = 0;
  double rate = 0;
};

struct Chaos {
  std::vector<Fault> faults;
  std::optional<RandomFaults> random;
};
Chaos parse_chaos(const std::string& specification);  // UsageError

// When a fault may happen: so many updates are made, a checkpoint of such a step is due, a generation or a fence of
// such a number begins, so many newcomers have introduced themselves.
struct Moment {
  enum class What { step, checkpoint, generation, newcomer };
  What what = What::step;
  int64_t number = 0;
};
const char* name_of(Moment::What what);

// What random faults need to know of a worker that is around.
struct Target {
  bool sound = false;   // a member that has the state, and is neither leaving nor doomed
  bool doomed = false;  // killed, asked to leave, or stopped for the time being: let it be
};

struct Strike {
  Fault::What what = Fault::What::kill;
  size_t target = 0;   // of those that are around; none for a join
  double after = 0;    // seconds from the moment on: any phase of a step, a checkpoint or a change may be hit
  double seconds = 0;  // of a stall
};

// Whether something happens at a moment (more often at the rarer kinds of them), and what.
bool strikes_at(const RandomFaults& random, const Moment& moment);
std::vector<Strike> strikes_of(const RandomFaults& random, const Moment& moment, std::vector<Target> around);

}  // namespace elinvar
