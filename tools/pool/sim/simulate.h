#pragma once
// The pool in simulated time: discrete events around a policy, the same function that the daemon calls.
//
// Outside events come from a trace; the speeds of jobs and the costs of changes come from a table. Each change is
// charged: a job stalls while it starts, stops, or others join it; a slot that is taken from a job is free only when
// its worker has left; if all workers of a job die, progress since the last checkpoint is lost. Each plan is checked
// against the rules of state.h; one that breaks them ends the simulation with a Failure.
#include <string>
#include <vector>

#include "tools/pool/policies/policies.h"
#include "tools/pool/sim/trace.h"

namespace elinvar::pool {

// The knowledge of speeds that a policy has.
enum class Belief {
  kExact,    // the table's rates
  kLearned,  // fitted to measurements of the job and of earlier jobs of its model; with trials (advisor.h)
  kLinear,   // n workers are n times as fast as one, as is assumed if nothing is known
};

// The settings of a simulation.
struct Conditions {
  Belief models = Belief::kExact;
  double horizon = 300, patience = 1800, turn = 300;  // of the Pool
  double settle = 5;                                  // seconds between plans, at least
  double period = 120;                                // seconds between plans, at most, while there are jobs
  double until = kNever;                              // the end of the simulation; kNever: when the last job ends
  double noise = 0.02;                                // relative standard deviation of measurements
  uint64_t seed = 1;                                  // of the noise
  bool keep_log = false;                              // record each decision that changed something, as a line
};

struct JobOutcome {
  std::string model;
  double submitted = 0, started = kNever, ended = kNever;  // seconds
  double samples = 0, total = 0;
  double waited = 0;  // seconds without slots, in all
  double alone = 0;   // seconds that it would take alone with its fixed size
  int changes = 0;
};

// Areas are in slot-seconds. A reference is one slot of the kind on which the job's model is fastest, used by one
// worker.
struct Outcome {
  std::vector<JobOutcome> jobs;  // by submission
  double seconds = 0;
  double available = 0;  // slots in the pool
  double held = 0;       // slots held by jobs, until their workers had left
  double standing = 0;   // slots held by stalled jobs
  double work = 0;       // reference-seconds of lasting progress
  double undone = 0;     // reference-seconds of lost progress
  int plans = 0, changes = 0, deaths = 0;
  double worst_gap = 0;
  double planning = 0, slowest_plan = 0;  // real seconds; all others are simulated
  // Learned: the mean relative error of predictions of which the model was sure (trials.h), when they were measured.
  double sure_error = 0;
  int sure = 0;
  std::vector<std::string> log;
};

Outcome simulate(const Trace& trace, const Table& table, Plan (*policy)(const Pool&), const Conditions& settings = {});

}  // namespace elinvar::pool
