#pragma once
// The pool at an instant, and a plan for it: values alone. A policy is a pure function from the one to the other; the
// daemon and the simulator call the same ones, so that what is simulated is what runs.
//
// A slot is the place for one worker: one GPU, or so many cores of a host. Its kind says what it is ("H200",
// "epyc-4-threads"): slots of one kind are interchangeable in device, threads and memory. A job's result does not
// depend on its slots, so a policy may give and take them at will; what that costs in time is in RescaleCosts. Times
// are seconds on one clock of the pool's, durations are seconds, progress is counted in samples.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace elinvar::pool {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kExpiring = 60;  // a slot that is gone within so many seconds is given to nobody

using Id = int64_t;  // of a slot or a job; never used again

struct Slot {
  Id id = 0;
  std::string kind;
  std::string host;       // slots of one host can be one worker together (WorkerShape::width)
  double since = 0;       // available since
  double until = kNever;  // gone by then (a preemption notice, the end of an allocation), if that is known

  bool expiring(double now) const { return until < now + kExpiring; }
};

// How the workers of a job compute. The slots of a worker are on one host and of one kind; its threads are theirs.
struct WorkerShape {
  int width = 1;           // slots a worker
  bool recompute = false;  // activations are computed twice, which takes time and saves memory
  auto operator<=>(const WorkerShape&) const = default;
};

using Allocation = std::map<std::string, int>;  // workers of each kind; no kind with 0
int workers(const Allocation& allocation);

// What is known of a job's speed. rate() is 0 where the job cannot run so (too little memory, for one).
struct Rate {
  double samples = 0;  // a second
  double error = 0;    // one standard deviation, as a part of `samples`; 0: measured
};
class Speed {
 public:
  virtual ~Speed() = default;
  virtual Rate rate(const Allocation& workers, const WorkerShape& shape) const = 0;
};

// How a job ran for a while: what speeds are learned from.
struct Measurement {
  Allocation workers;
  WorkerShape shape;
  double seconds = 0;          // for so long
  double rate = 0;             // samples a second; 0: it could not run so, for want of memory
  double predicted = 0;        // what the speed model had said when the job was given this; 0: it knew nothing
  double predicted_error = 0;  // the error that the model gave for it (Rate::error)
  bool trial = false;          // so that this is known, and for nothing else (advisor.h)
};

// What changes of a job's slots cost, in seconds, if nothing else is known (rescale_costs.h). Of a newcomer's `join`
// the others stand still for join_stall, all of a `start` is without progress. Another shape or nothing but other slots
// is a start anew.
struct RescaleCosts {
  double start = 5;         // from slots to the first step, the state being on disk or to be made
  double join = 2;          // from a slot to the newcomer's first step
  double join_stall = 0.2;  // the others wait
  double leave = 0.5;       // from the decision until the slot is free
  double leave_stall = 0.1;
  double death_stall = 1;        // a worker dies, others are left
  double stop = 2;               // a checkpoint, and the end of all workers
  double finish = 2;             // the same after the last step, and the validation that follows it
  double checkpoint_every = 60;  // if all workers die at once the progress since then is lost
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
// Measured costs that are 0 were not measured yet. completed() takes these from `otherwise`.
constexpr RescaleCosts kUnmeasured{0, 0, 0, 0, 0, 0, 0, 0, 0};
RescaleCosts completed(RescaleCosts seen, const RescaleCosts& otherwise);

// The overheads of a job beyond its steps: changes, above, and validations, scores on held-out data. Workers share
// them as they share steps, so that one is worth as many samples of training as take as long, whatever the workers; and
// a job's progress is counted in these.
struct Validations {
  int64_t every = 0;   // steps between two; 0: there is only the one at the end
  double samples = 0;  // that one is worth
};
// What a job has to do for its first `steps` steps, and for all of its `steps`.
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
  int fixed_workers = 1;                   // what policies of fixed sizes give: what its user would have asked for
  std::vector<std::string> kinds;          // allowed; none named: all. The first is what its user would have asked for
  std::vector<WorkerShape> shapes = {{}};  // in which it can compute, the usual one first
  int priority = 0;                        // higher goes first
  double submitted = 0;
  double deadline = kNever;
  int virtual_ranks = 0;       // of a step, which are assigned to the workers; 0: unknown
  double done = 0, total = 1;  // samples, and what they are worth of validations
  double since = 0;            // has waited, or run without a break, since then
  RescaleCosts costs;
  std::shared_ptr<const Speed> speed;  // never null
  std::vector<Measurement> measured;   // oldest first; the last one may be of the present allocation
  std::vector<Id> slots;               // at present, all of them in the pool: worker after worker, `width` slots each
  WorkerShape shape;                   // at present

  bool running() const { return !slots.empty(); }
  bool allows(const std::string& kind) const;
  double left() const { return total - done; }  // samples
  double seconds_left(double rate) const;       // with so many samples a second, from here to its end
};

// Everything that a policy may know.
struct Pool {
  double now = 0;
  std::vector<Slot> slots;
  std::vector<Job> jobs;   // that are not finished, in the order of submission
  double horizon = 120;    // for so long this plan will stand, one expects: what a change gains must be gained within
  double patience = 1800;  // a job that has waited for longer is due: see `violations`
  double turn = 300;       // what has run for less keeps at least its minimum
};

// One for each job of the pool, also where nothing changes.
struct Decision {
  Id job = 0;
  std::vector<Id> slots;  // none: it waits. In the order of Job::slots
  WorkerShape shape;
  std::string reason;  // for people: why so many, why these
  bool trial = false;  // for a while, since its speed with these is not known (advisor.h)
};
struct Plan {
  std::vector<Decision> decisions;  // in the order of Pool::jobs
  std::string note;                 // of the whole: what limited it, what was fallen back on
  double gap = 0;                   // by the policy's own measure the best plan may be better by this part
};

using Policy = std::function<Plan(const Pool&)>;

// What is wrong with a plan, as sentences; empty if nothing is. Every plan of every policy obeys:
//   1. each job has one decision with a reason; no slot is given twice; every slot is there, allowed, and not going
//   2. a worker's slots are on one host and of one kind, the shape is one of the job's
//   3. a job has between min_workers and max_workers, or nothing
//   4. a job with slots that has run for less than `turn` keeps at least its minimum, if its slots are still there
//   5. nobody is overtaken for ever: while the job that has been due for longest has nothing, no other (but those due
//      for longer) gets a slot more of a kind that it allows
// By 4 and 5 every job gets its turn as long as others end or can shrink.
std::vector<std::string> violations(const Pool& pool, const Plan& plan);

// Jobs of the pool (by their places) that are due, longest first: they have waited beyond the pool's patience, and the
// slots of kinds on which they can run in a shape of one slot a worker suffice for their minimum.
std::vector<size_t> due_jobs(const Pool& pool);

// What is wrong with the pool itself: double ids, slots in two jobs, bounds that contradict each other.
std::vector<std::string> violations(const Pool& pool);

// The workers of each kind that these slots are. All must be in the pool.
Allocation allocation_of(const Pool& pool, const std::vector<Id>& slots, const WorkerShape& shape);

// What a change of a job's workers costs: it stands still for `stall` seconds, then computes with `meanwhile` for
// `ramp` more until its newcomers are ready. `samples` is what it computes less than if the change took no time. What
// is stopped must be started again some day: that start is charged then.
struct Change {
  double stall = 0, ramp = 0, samples = 0;
  Allocation meanwhile;
  bool anew = false;  // no worker stays: the job starts, from its state on disk
};
// From the job's present slots to others.
Change change_of(const Pool& pool, const Job& job, const std::vector<Id>& slots, const WorkerShape& shape);
// The same where only numbers are known: `kept` of the workers of before stay (none if the shape changes).
Change change_of(const Job& job, const Allocation& before, const Allocation& kept, const Allocation& after,
                 const WorkerShape& shape);

}  // namespace elinvar::pool
