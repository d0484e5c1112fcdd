#pragma once
// The state of the pool at one moment, and a plan for it, as plain values. A policy is a pure function from the state
// to the plan; the daemon and the simulator call the same policies, so that what is simulated is what runs.
//
// A slot is the place for one worker: one GPU, or some cores of a host. Slots of one kind ("H200", "epyc-4-threads")
// are interchangeable in device, threads and memory. A job's result does not depend on its slots, so a policy may give
// and take them freely; RescaleCosts says what that costs. Times are seconds on the pool's clock, durations are
// seconds, and progress is counted in samples.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tools/pool/plan/allocation.h"

namespace elinvar::pool {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kExpiring = 60;  // seconds; a slot that goes sooner is not assigned

using Id = int64_t;  // id of a slot or a job; never reused

struct Slot {
  Id id = 0;
  std::string kind;
  std::string host;       // slots of one host can be one worker together (WorkerShape::width)
  double since = 0;       // available since
  double until = kNever;  // when it goes (a preemption notice, the end of an allocation), if known
  // Whether it can be one worker with other slots of its host and kind: a GPU cannot. The same for all slots of a kind.
  bool combinable = true;

  bool expiring(double now) const { return until < now + kExpiring; }
};

// How the workers of a job compute. A worker's slots are on one host and of one kind, and combinable if they are
// several; it has the threads of all of them.
struct WorkerShape {
  int width = 1;           // slots per worker
  bool recompute = false;  // activations are computed twice, which takes time and saves memory
  auto operator<=>(const WorkerShape&) const = default;
};

// The measured speed of a job. rate() is 0 if the job cannot run like this, for example for lack of memory.
struct Rate {          // samples per second
  double samples = 0;  // per second
  double error = 0;    // one standard deviation, as a fraction of `samples`; 0: measured
};
class Speed {
 public:
  virtual ~Speed() = default;
  virtual Rate rate(const Allocation& workers, const WorkerShape& shape) const = 0;
};

// How a job ran for a while; speeds are learned from these.
struct Measurement {
  Allocation workers;
  WorkerShape shape;
  double seconds = 0;          // duration
  double rate = 0;             // samples per second; 0: it could not run, for lack of memory
  double predicted = 0;        // the speed model's rate when the job was given this; 0: it knew nothing
  double predicted_error = 0;  // the model's error of that rate (Rate::error)
  bool trial = false;          // whether the job ran so only to be measured (advisor.h)
};

// The costs of changing a job's slots, in seconds; the defaults apply until a cost is measured (rescale_costs.h). While
// a newcomer joins, the others stall for join_stall; during a `start` there is no progress. A change of shape, or one
// after which no worker stays, is a new start.
struct RescaleCosts {
  double start = 5;         // from slots to the first step, with the state on disk or initial
  double join = 2;          // from a slot to the newcomer's first step
  double join_stall = 0.2;  // the others stall
  double leave = 0.5;       // from the decision until the slot is free
  double leave_stall = 0.1;
  double death_stall = 1;        // a worker dies and others are left
  double stop = 2;               // a checkpoint, and the end of all workers
  double finish = 2;             // a stop after the last step, and the validation that follows it
  double checkpoint_every = 60;  // interval; if all workers die at once, progress since the last checkpoint is lost
};

struct NamedCost {
  const char* name;
  double RescaleCosts::*seconds;
};
inline constexpr NamedCost kCosts[] = {{"start", &RescaleCosts::start},
                                       {"join", &RescaleCosts::join},
                                       {"join_stall", &RescaleCosts::join_stall},
                                       {"leave", &RescaleCosts::leave},
                                       {"leave_stall", &RescaleCosts::leave_stall},
                                       {"death_stall", &RescaleCosts::death_stall},
                                       {"stop", &RescaleCosts::stop},
                                       {"finish", &RescaleCosts::finish},
                                       {"checkpoint_every", &RescaleCosts::checkpoint_every}};
// Costs not measured yet are 0; completed() replaces them by those of `otherwise`.
constexpr RescaleCosts kUnmeasured{0, 0, 0, 0, 0, 0, 0, 0, 0};
RescaleCosts completed(RescaleCosts seen, const RescaleCosts& otherwise);

// Validations are scores on held-out data, computed in addition to steps. Workers share them like steps, so a
// validation costs as much as the training of so many samples, whatever the workers; progress includes these samples.
struct Validations {
  int64_t every = 0;   // steps between two; 0: one at the end only
  double samples = 0;  // cost of one, in samples of training
};
// The work in samples of a job's first `steps` steps, and of a whole job of `steps` steps.
double work_for(int64_t steps, double batch, const Validations& validations);
double work_of_all(int64_t steps, double batch, const Validations& validations);

struct Overheads {
  RescaleCosts costs;
  Validations validations;
};

struct Job {
  Id id = 0;
  std::string name;
  int min_workers = 1, max_workers = 1;
  int fixed_workers = 1;                   // the size for policies of fixed sizes: what the user would request
  std::vector<std::string> kinds;          // allowed kinds, the user's first choice first; empty: all
  std::vector<WorkerShape> shapes = {{}};  // shapes that it can compute in, the usual one first
  int priority = 0;                        // higher comes first
  double submitted = 0;
  double deadline = kNever;
  int virtual_ranks = 0;       // per step, which are assigned to the workers; 0: unknown
  double done = 0, total = 1;  // samples, validations included
  double since = 0;            // when it began to wait, or to run without interruption
  RescaleCosts costs;
  std::shared_ptr<const Speed> speed;  // never null
  std::vector<Measurement> measured;   // oldest first; the last may be for the current allocation
  std::vector<Id> slots;               // current slots, all in the pool: worker after worker, `width` slots each
  WorkerShape shape;                   // current

  bool running() const { return !slots.empty(); }
  bool allows(const std::string& kind) const;
  double left() const { return total - done; }  // samples
  double seconds_left(double rate) const;       // until its end, at `rate` samples per second
};

// Everything that a policy knows.
struct Pool {
  double now = 0;
  std::vector<Slot> slots;
  std::vector<Job> jobs;   // unfinished ones, by submission
  double horizon = 120;    // how long a plan is expected to last; a change must gain more in that time than it costs
  double patience = 1800;  // a job that has waited longer is due (violations())
  double turn = 300;       // a job that has run for less keeps at least its minimum
};

// The decision for one job. A plan has one for each job of the pool, also if nothing changes.
struct Decision {
  Id job = 0;
  std::vector<Id> slots;  // in the order of Job::slots; empty: the job waits
  WorkerShape shape;
  std::string reason;  // for people: why this many, why these
  bool trial = false;  // whether it has the slots only for a while, to measure its speed (advisor.h)
};
struct Plan {
  std::vector<Decision> decisions;  // in the order of Pool::jobs
  std::string note;                 // about the whole plan: what limited it, which fallback was used
  double gap = 0;                   // by what fraction the best plan may be better, by the policy's own measure
};

using Policy = std::function<Plan(const Pool&)>;

// Returns what is wrong with a plan, as sentences; empty if nothing is. Every plan of every policy obeys these rules:
//   1. each job has one decision with a reason; no slot is assigned twice; every slot exists, is allowed and does not
//      go
//   2. a worker's slots are on one host and of one kind, and combinable if they are several; the shape is one of the
//      job's
//   3. a job has between min_workers and max_workers, or nothing
//   4. a job that has run for less than `turn` keeps at least its minimum, if its slots still exist
//   5. no job is overtaken forever: while the job that has been due for longest has nothing, no other (except those due
//      for longer) gets more slots of a kind that it allows
// By 4 and 5 every job gets its turn as long as others end or can shrink.
std::vector<std::string> violations(const Pool& pool, const Plan& plan);

// Returns the indices of jobs that are due, longest first: they have waited beyond the pool's patience, and the slots
// of kinds on which they can run in a shape of one slot per worker suffice for their minimum.
std::vector<size_t> due_jobs(const Pool& pool);

// Returns what is wrong with the pool itself: duplicate ids, slots of two jobs, contradictory bounds.
std::vector<std::string> violations(const Pool& pool);

// Returns how many workers of each kind these slots make. All must be in the pool.
Allocation allocation_of(const Pool& pool, const std::vector<Id>& slots, const WorkerShape& shape);

// The cost of changing a job's workers. The job stalls for `stall` seconds and then computes with `meanwhile` for
// `ramp` more, until its newcomers are ready. `samples` is the loss compared with an instantaneous change. A stop does
// not include the cost of the next start, which is charged when it happens.
struct Change {
  double stall = 0, ramp = 0, samples = 0;
  Allocation meanwhile;
  bool anew = false;  // no worker stays: the job starts, from its state on disk
};
// The cost of a change from the job's current slots to others.
Change change_of(const Pool& pool, const Job& job, const std::vector<Id>& slots, const WorkerShape& shape);
// The same from numbers of workers: `kept` of the current ones stay (none if the shape changes).
Change change_of(const Job& job, const Allocation& before, const Allocation& kept, const Allocation& after,
                 const WorkerShape& shape);

}  // namespace elinvar::pool
