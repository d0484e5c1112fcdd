#pragma once
// Fault injection (`train run --chaos SPEC`): the kinds of faults, and pure functions that decide when one happens.
// tools/training/fault_injector.h and elastic/session/worker_faults.h inject them.
//
//   kill:worker=ID,step=N               SIGKILL to a worker while update N is made (the first is 1)
//   kill:coordinator,step=N             SIGKILL to the coordinator
//   kill:all,step=N                     SIGKILL to all workers at once
//   kill:worker=ID,step=N,at=POINT      the worker kills itself at one point of update N, where it comes there. It is
//                                       one of: "forward", it begins its first rank gradient; "within", it has sent one
//                                       other member its first values of a rank gradient that they compute together
//                                       (tensor parallelism), or has begun to send them from GPU to GPU; "boundary",
//                                       it has sent one member of another stage its first value or gradient between
//                                       them (pipeline parallelism); "contribute", "sum" or "value", it has sent one
//                                       other member the first subtree roots of its rank gradients, the first sum of a
//                                       bucket that it owns, or, with ZeRO, the first parameters that it has updated;
//                                       "part", it is about to send its part of the trailer; "trailer", it has sent one
//                                       other member the trailer or, if it does not lead, has received it; "update", it
//                                       has made its update and, with ZeRO, sent no parameters; "fetch", it has sent
//                                       one other member the first parameters that this one has asked for (ZeRO-3)
//   stall:worker=ID,step=N,seconds=S    SIGSTOP, and SIGCONT after S seconds
//   drain:worker=ID,step=N              SIGTERM: the worker is asked to leave
//   join:step=N                         one more worker is started
//   arrange:step=N,ENTRY,..             another arrangement is asked for, as by `train ctl arrange`: tp=2,zero=1
//   drop:worker=ID,step=N               the first message of this worker's part in reduction N is lost; a repeated
//                                       reduction loses none
//   flip:worker=ID,step=N,bit=B,what=W  a bit flips in this worker in update N, and later results are wrong. W is one
//                                       of: "leaf" (the default), the gradients of its first virtual rank, or the
//                                       first gradient if gradients are sent one by one; "input", the input of that
//                                       rank gradient; "reduced", the first sum that it reduces for all workers;
//                                       "parameter" or "optimizer", its state after the update. Bits are counted
//                                       through all tensors of that kind in order, and start over after the last
//   random:seed=N,rate=P                any of these to workers, at any moment, with probability P in each step
//
// Faults are separated by ';'. ID is a worker's id as `train ctl status` shows it; 0 is the leader of that moment. The
// worker itself injects drops, flips and kills at a point, which are never random. Random faults leave at least one
// member with the state alive and running, and start workers only while there are fewer than kMostRandomWorkers.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace elinvar {

inline constexpr size_t kMostRandomWorkers = 6;

struct Fault {
  enum class What { kill, stall, drain, join, drop, flip, arrange };
  enum class Whom { worker, coordinator, all };
  enum class Flips { gradient, input, reduced, parameter, optimizer };
  enum class Point { forward, within, boundary, contribute, sum, part, trailer, update, value, fetch };
  What what = What::kill;
  Whom whom = Whom::worker;
  int worker = 0;
  int64_t step = 1;
  double seconds = 0;  // how long a stall lasts
  int64_t bit = 0;     // which bit a flip inverts
  Flips flips = Flips::gradient;
  std::optional<Point> at = {};  // of a kill by the worker itself
  std::string entries = {};      // of an arrangement
};
const char* name_of(Fault::What what);
const char* name_of(Fault::Flips what);
const char* name_of(Fault::Point point);
inline bool by_worker(const Fault& fault) {
  return fault.what == Fault::What::drop || fault.what == Fault::What::flip || fault.at;
}

struct RandomFaults {
  uint64_t seed = 0;
  double rate = 0;
};

struct Chaos {
  std::vector<Fault> faults;
  std::optional<RandomFaults> random;
};
Chaos parse_chaos(const std::string& specification);  // throws UsageError

// When a fault may happen: after `number` updates, when the checkpoint of step `number` is due, when generation or
// fence `number` begins, or when `number` newcomers have introduced themselves.
struct Moment {
  enum class What { step, checkpoint, generation, newcomer };
  What what = What::step;
  int64_t number = 0;
};
const char* name_of(Moment::What what);

// The facts about a running worker that draw_faults() needs.
struct Target {
  bool sound = false;   // a member that has the state, and is neither leaving nor doomed
  bool doomed = false;  // killed, asked to leave, or stopped at the moment: gets no further fault
};

struct DrawnFault {
  Fault::What what = Fault::What::kill;
  size_t target = 0;   // index into `around`; unused by a join
  double after = 0;    // seconds after the moment, so that any phase of a step, checkpoint or change may be hit
  double seconds = 0;  // how long a stall lasts
};

// fault_happens_at() decides whether a fault happens at a moment; the rarer kinds of moments have a higher chance.
// draw_faults() returns one to three faults, or none if no worker may be hit or started.
bool fault_happens_at(const RandomFaults& random, const Moment& moment);
std::vector<DrawnFault> draw_faults(const RandomFaults& random, const Moment& moment, std::vector<Target> around);

}  // namespace elinvar
