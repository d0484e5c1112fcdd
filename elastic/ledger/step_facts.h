#pragma once
// What a worker tells of a step, and the coordinator writes to ledger, digests.jsonl (LEDGER.md) and metrics: as much
// of it as the run's configuration asks for.
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
  double loss = 0, accuracy = 0;
  int64_t samples = 0;

  ELINVAR_FIELDS(loss, accuracy, samples)
};

// What the training loop says of a step after its update. Without an update, after the last step, `validation` alone.
struct StepReport {
  double lr = 0, gradient_norm = 0;
  std::optional<int64_t> position = {};            // with adaptive scaling: as many steps of the configured batch
  std::optional<ValidationScore> validation = {};  // of the state before the update
  std::string readers = {};  // why the threads that read data are other ones now; "": they are not

  ELINVAR_FIELDS(lr, gradient_norm, position, validation, readers)
};

// The update `step` + 1.
struct UpdateFacts {
  Digest batch = {};
  double loss = 0;
  std::map<int, Digest> leaves = {};  // of those virtual ranks that the ledger names
  Digest gradient = {};               // of the reduced gradient and its batch statistics
  int64_t count = 0, correct = 0, samples = 0;
  std::vector<double> seconds = {};  // that a leaf took each member; 0: it had none
  double reduce_seconds = 0;
  int64_t generation = 0;  // whose members made it
  int64_t batch_size = 0;  // with adaptive scaling; else 0

  ELINVAR_FIELDS(batch, loss, leaves, gradient, count, correct, samples, seconds, reduce_seconds, generation,
                 batch_size)
};

struct StepFacts {
  int64_t step = 0;
  std::optional<UpdateFacts> update = {};  // none after the last step
  std::optional<Digest> state = {};        // before the update, where every member digested it,
  StateDigests state_digests = {};         // and its parts
  std::optional<int64_t> end = {};         // with adaptive scaling: the last step, once it is known
  StepReport report = {};
  double at = 0;             // when the step was made, on the clock of the worker that tells of it
  double age = 0;            // seconds since then, when it was told
  std::string digests = {};  // its line in digests.jsonl; "": none

  ELINVAR_FIELDS(step, update, state, state_digests, end, report, at, age, digests)
};

// Of one leaf of update `step` + 1, before it leaves the worker: the digest of its gradients and batch statistics, and
// those of single tensors where they are due.
void digest_leaf(RankGradient& leaf, int64_t step, const LedgerOptions& ledger, int vranks);

// The facts of step `step`, with the digest of the state where that was told with it, and those of the update that
// follows: `gradient` is that of the reduced one and its batch statistics; none after the last step.
StepFacts facts_of(const Reduced& reduced, std::optional<TensorsDigest> gradient, int64_t step,
                   const LedgerOptions& ledger, int vranks);

}  // namespace elinvar
