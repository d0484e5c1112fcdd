#pragma once
// The pool in simulated time: discrete events around a policy, the same function that the daemon calls.
//
// What happens from outside is a trace; how fast jobs are and what changes cost them is a table, and is charged at
// every change: a job stands still while it starts, stops, or others join it; a slot that is taken away is free for the
// next job only when its worker has left; if all workers of a job die, what it did since its last checkpoint is lost.
// Each plan is checked against the rules of state.h; one that breaks them ends the simulation with a Failure.
#include <string>
#include <vector>

#include "tools/pool/policies/policies.h"
#include "tools/pool/sim/trace.h"

namespace elinvar::pool {

// What a policy is told of speeds.
enum class Belief {
  kExact,    // the table's
  kLearned,  // fitted to what was measured of the job, and of jobs of the same model before it; with trials (advisor.h)
  kLinear,   // n workers are n times as fast as one: what is believed where nothing is known
};

// Under which a simulation runs.
struct Conditions {
  Belief models = Belief::kExact;
  double horizon = 300, patience = 1800, turn = 300;  // of the Pool
  double settle = 5;                                  // seconds between two plans, at least
  double period = 120;                                // and at most, while there are jobs
  double until = kNever;                              // the end of the simulation; else it ends with the last job
  double noise = 0.02;                                // of what is measured (one standard deviation)
  uint64_t seed = 1;                                  // of that
  bool keep_log = false;                              // every decision that changed something, as a line
};

struct JobOutcome {
  std::string model;
  double submitted = 0, started = kNever, ended = kNever;  // seconds
  double samples = 0, total = 0;
  double waited = 0;  // without slots, in all
  double alone = 0;   // what it would take with its fixed size and no one else
  int changes = 0;
};

// Areas are slot-seconds. A reference is one slot of the kind on which the job's model is fastest, used by one worker.
struct Outcome {
  std::vector<JobOutcome> jobs;  // by submission
  double seconds = 0;
  double available = 0;  // slots that were there
  double held = 0;       // by jobs, until their workers had left
  double standing = 0;   // held by jobs that stood still
  double work = 0;       // reference-seconds of progress that lasted
  double undone = 0;     // reference-seconds that were done and lost
  int plans = 0, changes = 0, deaths = 0;
  double worst_gap = 0;
  double planning = 0, slowest_plan = 0;  // real seconds, all others are simulated
  // Learned: the mean relative error of predictions that the model was sure of (advisor.h), when they came to be tried.
  double sure_error = 0;
  int sure = 0;
  std::vector<std::string> log;
};

Outcome simulate(const Trace& trace, const Table& table, Plan (*policy)(const Pool&), const Conditions& settings = {});

}  // namespace elinvar::pool
