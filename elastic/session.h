#pragma once
// A session carries a run from step to step: it deals virtual ranks, combines their leaves by the reduction tree, and
// keeps the run directory. It knows a dictionary of state and a number of steps, not networks nor data.
//
//   while (session.step() < steps) {
//     for (int vrank : session.begin().mine) session.add(vrank, leaf of (state, session.step(), vrank));
//     session.reduce();
//     ... update the state by session.reduced() ...
//     session.advance();
//   }
//
// Between begin and reduce the state must not change. Everything of the run that is written down happens in advance:
// the ledger line of the step, and a checkpoint where the configuration asks for one. Killed at any moment, the run
// resumes from its newest good checkpoint and repeats the steps after it, bit by bit.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elastic/events.h"
#include "tensor/digest.h"
#include "tensor/state.h"

namespace elinvar {

// Whether something that is done every so many steps (0: never) is done after `step`.
inline bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

struct SessionOptions {
  std::filesystem::path directory;
  int virtual_ranks = 1;
  int64_t steps = 0;               // of the whole run
  int64_t state_digest_every = 0;  // 0: only at scheduled checkpoints and at the end
  int64_t checkpoint_every = 0;    // 0: only at the end
  int keep = 3;                    // checkpoints
  bool resume = false;
};

// How the session gets at the state. `view` may share storage with the live state; `load` copies.
struct StateAccess {
  std::function<StateDict()> view;
  std::function<void(const StateDict&)> load;
};

// Which virtual ranks this process executes, ascending.
struct Plan {
  std::vector<int> mine;
};

// What one virtual rank contributes: sums, not means. Without samples (a short batch) it has no tensors.
struct Leaf {
  std::vector<Tensor> gradients = {};
  std::vector<Tensor> terms = {};  // of running statistics: combined by the same tree, but not scaled
  double loss_sum = 0;
  int64_t count = 0;  // what the mean divides by: targets that count
  int64_t correct = 0;
  int64_t samples = 0;
  Digest batch = {};  // of its input and target
};

struct Reduced {
  std::vector<Tensor> gradients;  // root of the tree * float(1 / count): one more rounding
  std::vector<Tensor> terms;      // root of the tree
  int leaves = 0;                 // virtual ranks that had samples
  double loss = 0;                // virtual ranks' sums, added left to right in binary64, / count
  int64_t count = 0, correct = 0, samples = 0;
  Digest batch, gradient;  // gradient: over those of the scaled gradients, in order
};

class Session {
 public:
  // Opens the run directory and locks it against other processes. A new run needs one without a run in it (else
  // UsageError). With `resume` the state of the newest good checkpoint is loaded; without any checkpoint the run starts
  // at its beginning; if there are some and all are damaged it is a Failure that tells why of each.
  Session(const SessionOptions& options, StateAccess state);
  ~Session();

  int64_t step() const;                             // updates made so far
  const std::vector<std::string>& notices() const;  // what the user should know about how it was opened
  EventLog& events();

  Plan begin();
  void add(int vrank, Leaf leaf);  // in the order of the plan
  void reduce();                   // Failure if the batch has no target that counts
  const Reduced& reduced() const;  // until the next begin
  void advance();                  // the state now is that after the update
  void checkpoint();               // now, whatever the schedule says; nothing if this step has one
  Digest state_digest() const;     // of the state now, with the step

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elinvar
