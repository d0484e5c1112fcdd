#pragma once
// Auditing for silent corruption (PROTOCOL.md, "Audit"): which leaf and which sum of a step are computed twice, by
// whom, and what follows where two results differ. Pure functions: members carry out, the coordinator asks judge().
//
// What a worker says of a step is a *claim*. A leaf is a function of state, step and virtual rank, and a sum is one of
// what was added up, so two claims on the same thing that differ are proof that one of them is wrong; if they are by
// one worker, it is that worker's.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/step/generation.h"
#include "elastic/step/step.h"
#include "tensor/fields.h"

namespace elinvar {

struct AuditOptions {
  int64_t every = 0;  // updates; 0: nothing is audited
  uint64_t seed = 0;  // of the run
};

// Whether update `step` + 1 is audited, and which virtual rank's leaf and which bucket's sum then:
// functions of these arguments alone.
bool audited(const AuditOptions& options, int64_t step);
int audited_vrank(const AuditOptions& options, int64_t step, int vranks);
int audited_bucket(const AuditOptions& options, int64_t step, int buckets);

// Members, by their index. Who looks at something is as far as possible the same one after a death.
struct AuditRoles {
  int vrank = 0;
  int owner = 0;    // computes that leaf, and
  int auditor = 0;  // does so, too: the owner itself where it is alone, else preferably a member without leaves
  int bucket = -1;  // -1: no sum is audited, for there are no buckets or nobody who could
  int adder = -1;   // adds it up for all, and
  int checker = -1;
};
AuditRoles audit_roles(const AuditOptions& options, const Generation& generation, int64_t step, int vranks,
                       int buckets);

// Of everything in a leaf that goes into the update: facts (not `attached`), gradients and batch statistics, whose
// digest need not be taken again if it is among the facts.
Digest digest_of(const RankGradient& leaf);

struct SumClaim {
  Digest inputs, sum;
  bool operator==(const SumClaim&) const = default;
  ELINVAR_FIELDS(inputs, sum)
};

// Everything that one worker has said of a step, the oldest first.
struct AuditClaims {
  std::vector<Digest> states;  // before the step
  std::vector<Digest> leaves;  // of the audited virtual rank
  std::vector<SumClaim> sums;  // of the audited bucket

  ELINVAR_FIELDS(states, leaves, sums)
};

struct Witness {
  int worker = 0;  // its id
  AuditClaims claims;

  ELINVAR_FIELDS(worker, claims)
};

struct Evidence {
  enum class Stage {
    audit,   // two have computed what is audited
    trial,   // all have, once more
    replay,  // and before that, gone from a checkpoint to this state again
  };
  Stage stage = Stage::audit;
  int64_t step = 0;
  int vrank = 0, bucket = -1;
  std::vector<Witness> witnesses;  // of the generation
  // The audited sum as it was received by the worker that puts this together: as good as a claim of whoever added it
  // up, as long as nobody is blamed for it.
  std::optional<Digest> received;

  ELINVAR_FIELDS(stage, step, vrank, bucket, witnesses, received)
};

struct Verdict {
  enum class What {
    agreed,     // nothing in it differs
    try_all,    // everybody is to compute and send it once more
    guilty,     // of these there is proof, or a majority against them
    replay,     // who is right can only be seen from a checkpoint on
    undecided,  // nor from there
  };
  What what = What::agreed;
  std::vector<int> workers;  // the guilty; where it is undecided, those that differ
  std::string reason;        // for people
};
Verdict judge(const Evidence& evidence);
const char* name_of(Verdict::What what);

}  // namespace elinvar
