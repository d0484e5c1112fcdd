#pragma once
// Audits for silent corruption (PROTOCOL.md, "Audit"): selects the rank gradient and the sum of a step that are
// computed twice, assigns the members that compute them, and judges differences. Pure functions: members carry the
// audit out, and the coordinator calls judge().
//
// A statement of a worker about a step is a *claim*. A rank gradient is a function of state, step and virtual rank, and
// a sum is a function of its inputs, so if two claims about the same thing differ, one of them is wrong. If both are by
// one worker, that worker is at fault.
#include <cstdint>
#include <optional>
#include <span>
#include <span>
#include <string>
#include <vector>

#include "elastic/step/generation.h"
#include "elastic/step/step.h"
#include "tensor/fields.h"

namespace elinvar {

struct AuditOptions {
  int64_t every = 0;  // updates between audits; 0: no audits
  uint64_t seed = 0;  // the run's seed
};

// Functions of their arguments alone: whether update `step` + 1 is audited, and the virtual rank and the bucket that
// are then audited.
bool audited(const AuditOptions& options, int64_t step);
int audited_vrank(const AuditOptions& options, int64_t step, int vranks);
int audited_bucket(const AuditOptions& options, int64_t step, int buckets);

// The audit's members, by index. As far as possible, the roles stay with the same workers after a death.
struct AuditRoles {
  int vrank = 0;
  int owner = 0;  // computes the audited rank gradient; the first of those that do so together
  // computes it alone, too: preferably of another model replica, and without virtual ranks; the owner itself if it is
  // alone, or in its turn in the only replica
  int auditor = 0;
  // The audited bucket; -1: no sum is audited, because there are no buckets or no member can check one.
  int bucket = -1;
  int adder = -1;  // reduces the bucket for all members
  int checker = -1;
};
// `owners` has the index of the member that adds up each bucket.
AuditRoles audit_roles(const AuditOptions& options, const Generation& generation, int64_t step, int vranks,
                       std::span<const int> owners = {});

// Returns the digest of everything in a rank gradient that goes into the update: facts (except `attached`), gradients
// and batch statistics. Reuses the digest of the tensors if the facts contain it.
Digest digest_of(const RankGradient& gradient);

struct SumClaim {
  Digest inputs, sum;
  bool operator==(const SumClaim&) const = default;
  ELINVAR_FIELDS(inputs, sum)
};

// All claims of one worker about a step, the oldest first.
struct AuditClaims {
  std::vector<Digest> states = {};  // the state before the step
  std::vector<Digest> leaves = {};  // the gradient of the audited virtual rank
  std::vector<SumClaim> sums = {};  // the sum of the audited bucket
  // The same gradient as the worker has it from computing it together with others (tensor parallelism). It is compared
  // in an audit, but is no statement of one worker: it contradicts nobody, and does not count in a trial.
  std::optional<Digest> together = {};

  ELINVAR_FIELDS(states, leaves, sums, together)
};

struct Witness {
  int worker = 0;  // the worker's id
  AuditClaims claims;

  ELINVAR_FIELDS(worker, claims)
};

struct Evidence {
  enum class Stage {
    audit,   // two members have computed the audited results
    trial,   // all members have computed the audited results
    replay,  // all members have replayed from a checkpoint, and then computed the audited results
  };
  Stage stage = Stage::audit;
  int64_t step = 0;
  int vrank = 0, bucket = -1;
  std::vector<Witness> witnesses;  // the generation's members
  // The audited sum as received by the worker that assembles the evidence. It counts as a claim of the worker that
  // reduced the sum, unless a worker would be blamed for it.
  std::optional<Digest> received;

  ELINVAR_FIELDS(stage, step, vrank, bucket, witnesses, received)
};

struct Verdict {
  enum class What {
    agreed,     // no claims differ
    try_all,    // all members must compute and send it once more
    guilty,     // `workers` are proven wrong, or contradicted by a majority
    replay,     // only a replay from a checkpoint can show which claim is right
    restore,    // no member can replay: all restore the newest checkpoint, and repeat the steps
    undecided,  // a replay cannot show it either
  };
  What what = What::agreed;
  std::vector<int> workers;  // the guilty workers; if undecided, the workers that differ
  std::string reason;        // a text for people
};
// A majority of equal states counts only if the states are `independent`: each worker has made its own updates. With
// ZeRO it has the parameters of a bucket that it does not keep from the bucket's owner, so the owner's error may be in
// most states, and the worker that differs may be the one that is right.
Verdict judge(const Evidence& evidence, bool independent = true);
bool states_differ(const Evidence& evidence);  // the last claims about the state before the step
const char* name_of(Verdict::What what);

}  // namespace elinvar
