#pragma once
// The facts of a step that a worker reports and that the coordinator writes to ledger, digests.jsonl (LEDGER.md) and
// metrics, as far as the run's configuration requires them.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/ledger.h"
#include "elastic/step/step.h"
#include "tensor/fields.h"

namespace elinvar {

// A score of the validation split.
struct ValidationScore {
  double loss = 0;                             // the mean over targets that count
  std::map<std::string, double> metrics = {};  // by name: "accuracy", ...
  int64_t samples = 0;

  ELINVAR_FIELDS(loss, metrics, samples)
};

// The training loop's report of a step after its update. After the last step there is no update, and only `validation`
// counts.
struct StepReport {
  double lr = 0, gradient_norm = 0;
  // With adaptive scaling: the equivalent number of steps with the configured batch.
  std::optional<int64_t> position = {};
  std::optional<ValidationScore> validation = {};  // score of the state before the update
  std::string readers = {};                        // why the number of reading threads changed; "": it did not

  ELINVAR_FIELDS(lr, gradient_norm, position, validation, readers)
};

// The facts of update `step` + 1.
struct UpdateFacts {
  Digest batch = {};
  double loss = 0;
  std::map<int, Digest> leaves = {};  // digests of the rank gradients that the ledger names
  Digest gradient = {};               // digest of the reduced gradient and its batch statistics
  int64_t count = 0, correct = 0, samples = 0;
  std::vector<double> seconds = {};  // the time of one rank gradient on each member; 0: the member had none
  double reduce_seconds = 0;
  int64_t generation = 0;  // the generation whose members made the update
  int64_t batch_size = 0;  // with adaptive scaling; else 0

  ELINVAR_FIELDS(batch, loss, leaves, gradient, count, correct, samples, seconds, reduce_seconds, generation,
                 batch_size)
};

struct StepFacts {
  int64_t step = 0;
  std::optional<UpdateFacts> update = {};  // null after the last step
  std::optional<Digest> state = {};        // digest of the state before the update, if every member computed it
  StateDigests state_digests = {};         // digests of the parts of `state`
  std::optional<int64_t> end = {};         // with adaptive scaling: the last step, once it is known
  StepReport report = {};
  double at = 0;             // when the step was made, on the clock of the worker that reports it
  double age = 0;            // seconds between the step and its report
  std::string digests = {};  // the step's line in digests.jsonl; "": none

  ELINVAR_FIELDS(step, update, state, state_digests, end, report, at, age, digests)
};

// Digests one rank gradient of update `step` + 1 before it leaves the worker: its gradients and batch statistics
// together, and single tensors where that is due.
void digest_rank_gradient(RankGradient& gradient, int64_t step, const LedgerOptions& ledger, int vranks);

// The same from the digests of its tensors.
void digest_rank_gradient(RankFacts& facts, TensorsDigest digested, int64_t step, const LedgerOptions& ledger,
                          int vranks);

// Returns the facts of step `step`: the state's digest if `reduced` has it, and the facts of the update that follows.
// `gradient` is the digest of the reduced gradient and its batch statistics; null after the last step.
StepFacts facts_of(const Reduced& reduced, std::optional<TensorsDigest> gradient, int64_t step,
                   const LedgerOptions& ledger, int vranks);

}  // namespace elinvar
