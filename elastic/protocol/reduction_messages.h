#pragma once
// The reduction of a step between the members of a generation (elastic/protocol/exchange.h).
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/audit/audit.h"
#include "elastic/protocol/message_kind.h"
#include "elastic/step/step.h"
#include "tensor/fields.h"

namespace elinvar::messages {

// A subtree root of the reduction that a member holds; without values if none of its virtual ranks had samples.
struct Root {
  int begin = 0, end = 0;
  bool present = false;

  ELINVAR_FIELDS(begin, end, present)
};

// The subtree roots of one member in one bucket.
struct BucketRoots {
  int bucket = 0;
  int64_t count = 0;  // targets in all rank gradients of the sender
  std::vector<Root> roots = {};
  std::vector<Blob> slices = {};  // slices of the present roots, concatenated

  ELINVAR_FIELDS(bucket, count, roots, slices)
};

struct Contribution : BucketRoots {
  static constexpr Kind kKind{"contribution", kToMember, "a member's subtree roots of a bucket, to the bucket's owner"};
};

struct Check : BucketRoots {
  static constexpr Kind kKind{"check", kToMember, "the same of the audited bucket, to its checker"};
};

struct BucketResult {
  static constexpr Kind kKind{"result", kToMember, "the sum of a bucket, from its owner to all, or to a learner"};
  int bucket = 0;
  std::vector<Blob> slices = {};        // empty: no virtual rank had samples
  std::optional<int64_t> attempt = {};  // to a learner: the attempt of the state transfer

  ELINVAR_FIELDS(bucket, slices, attempt)
};

// Facts about the sum of a bucket that all members need although only its keepers get the sum (ZeRO): the sums of
// squares of its segments (float64, tensor/ops/global_norm.h) and the digests of its chunks (128 bits,
// tensor/digest_tree.h), in order.
struct SumFacts {
  int bucket = 0;
  Blob squares = {}, chunks = {};

  ELINVAR_FIELDS(bucket, squares, chunks)
};

// The digests of the chunks of the optimizer's state in a bucket, in the order of BucketState's tensors.
struct StateChunks {
  int bucket = 0;
  Blob chunks = {};

  ELINVAR_FIELDS(bucket, chunks)
};

struct TrailerPart {
  static constexpr Kind kKind{"part", kToMember, "a member's part of the trailer, to the first member"};
  int member = 0;
  int64_t held = 0;                        // the newest generation that it knows
  double seconds = 0;                      // the time of one rank gradient; 0: it computed none
  std::map<int, RankFacts> facts = {};     // facts of its virtual ranks
  std::map<int, JsonValue> attached = {};  // RankFacts::attached of virtual ranks whose facts another member reports
  std::optional<Digest> state = {};
  std::optional<ScalingState> scaling_state = {};  // the step's scaling state
  std::optional<AuditClaims> audit = {};           // set if the step is audited; claims about sums are sent separately
  int64_t group = 0;                               // the group of GPUs that this member is in (MemberGroups::name)
  std::vector<SumFacts> sums = {};                 // with ZeRO: of the buckets that it owns
  // With ZeRO, if the state is digested: the digests of the chunks of the optimizer's state in the buckets that it
  // keeps.
  std::vector<StateChunks> chunks = {};

  ELINVAR_FIELDS(member, held, seconds, facts, attached, state, scaling_state, audit, group, sums, chunks)
};

struct Trailer {
  static constexpr Kind kKind{"trailer", kToMember,
                              "what all parts say, from the first member to all, or to a learner"};
  int64_t agreed = 0;                 // the newest generation that every member holds
  std::vector<RankFacts> facts = {};  // facts of each virtual rank
  std::optional<Digest> state = {};
  StateDigests state_digests = {};  // the first member's digests
  std::optional<ScalingState> scaling_state = {};
  std::string contradiction = {};        // which members differ in the state's digest or in scaling state
  std::vector<double> seconds = {};      // the time of one rank gradient on each member
  std::vector<AuditClaims> audit = {};   // claims of each member, if the step is audited
  int64_t group = 0;                     // the group of GPUs that all members are in; 0: none
  std::vector<SumFacts> sums = {};       // with ZeRO: of all buckets of gradients, ascending
  std::vector<StateChunks> chunks = {};  // with ZeRO, if the state is digested: of all these buckets, ascending
  std::optional<int64_t> attempt = {};   // to a learner: the attempt of the state transfer

  ELINVAR_FIELDS(agreed, facts, state, state_digests, scaling_state, contradiction, seconds, audit, group, sums, chunks,
                 attempt)
};

struct GroupRoots {
  static constexpr Kind kKind{"roots", kToMember, "the subtree roots that a member gives to the group of GPUs"};
  int member = 0;
  int64_t count = 0;  // targets in all rank gradients of the sender
  std::vector<Root> roots = {};

  ELINVAR_FIELDS(member, count, roots)
};

struct Word {
  static constexpr Kind kKind{"word", kToMember, "what a checker came to in the audited bucket"};
  int member = 0;
  std::vector<SumClaim> claims = {};  // about this step, the oldest first

  ELINVAR_FIELDS(member, claims)
};

struct BucketValues {
  static constexpr Kind kKind{"value", kToMember,
                              "with ZeRO: the parameters in a bucket after update `step`, from its owner to all; of a "
                              "sparse table the rows that the step touched, or all"};
  int bucket = 0;
  std::vector<Blob> slices = {};
  std::optional<int64_t> attempt = {};  // to a learner: the attempt of the state transfer

  ELINVAR_FIELDS(bucket, slices, attempt)
};

struct BucketSums {
  static constexpr Kind kKind{"sums", kToMember,
                              "with ZeRO and LARS or LAMB: sums over the segments of a bucket, for trust ratios, from "
                              "its owner to all"};
  int bucket = 0;
  Blob sums = {};  // float64 (nn/update_rule.h)

  ELINVAR_FIELDS(bucket, sums)
};

struct WantValues {
  static constexpr Kind kKind{"want", kToMember,
                              "it lacks the `value` of these buckets after update `step`, and the `sums` of those"};
  std::vector<int> buckets = {}, sums = {};
  std::string endpoint = {};

  ELINVAR_FIELDS(buckets, sums, endpoint)
};

struct WantParameters {
  static constexpr Kind kKind{
      "want_parameters", kToMember,
      "it needs the parameters in these buckets, with ZeRO-3, or their averages, for the step after `step` updates"};
  std::vector<int> buckets = {};
  bool average = false;

  ELINVAR_FIELDS(buckets, average)
};

struct ParameterValues {
  static constexpr Kind kKind{
      "parameters", kToMember,
      "the parameters in a bucket, or their averages, after `step` updates, which the other wants"};
  int bucket = 0;
  bool average = false;
  std::vector<Blob> slices = {};

  ELINVAR_FIELDS(bucket, average, slices)
};

struct WantRows {
  static constexpr Kind kKind{"want_rows", kToMember,
                              "it needs these rows of the sparse table with index `table`, with ZeRO-3, or of its "
                              "average, for the step after `step` updates; `number` counts its requests of the step"};
  int64_t number = 0;
  int table = 0;
  bool average = false;
  Blob rows = {};  // int64, ascending

  ELINVAR_FIELDS(number, table, average, rows)
};

struct RowValues {
  static constexpr Kind kKind{"rows", kToMember, "the rows of the request `number`, after `step` updates"};
  int64_t number = 0;
  Blob values = {};

  ELINVAR_FIELDS(number, values)
};

// The order of the blobs is that of the optimizer's tensors for one slice, and then that of the bucket's slices.
struct BucketState {
  static constexpr Kind kKind{"shard", kToMember,
                              "the optimizer's state of a bucket after `step` updates, for a member that will keep it"};
  int bucket = 0;
  std::vector<Blob> tensors = {};
  std::vector<Digest> digests = {};  // of each tensor

  ELINVAR_FIELDS(bucket, tensors, digests)
};

// The value of a virtual shard, or the sum of several ([begin, end), a node of rule 24's tree).
struct ShardValue {
  int begin = 0, end = 0;
  Shape shape = {};
  DType dtype = DType::f32;

  bool operator==(const ShardValue&) const = default;
  ELINVAR_FIELDS(begin, end, shape, dtype)
};

struct ShardValues {
  static constexpr Kind kKind{
      "within", kToMember,
      "with tensor parallelism: what a member has computed of virtual rank `vrank`, its `number`th "
      "message about it, to the others of its stage"};
  int vrank = 0;
  int64_t number = 0;
  std::vector<ShardValue> values = {};
  std::vector<Blob> elements = {};  // of each value in order, in pieces (elastic/protocol/value_pieces.h)

  ELINVAR_FIELDS(vrank, number, values, elements)
};

struct BoundaryValue {
  static constexpr Kind kKind{
      "boundary", kToMember,
      "with pipeline parallelism: the value of virtual rank `vrank` that the forward pass through run `run` of "
      "segments gives, or the gradient of its input that the backward pass gives, to a member of the next stage; or, "
      "`in_group`, what the group of GPUs is about to transfer of it, if it has elements"};
  int vrank = 0, run = 0;
  bool backward = false;
  Shape shape = {};
  DType dtype = DType::f32;
  int64_t random = 0;  // the number of the next random operation
  bool in_group = false;
  std::vector<Blob> elements = {};  // in pieces; none in a group

  ELINVAR_FIELDS(vrank, run, backward, shape, dtype, random, in_group, elements)
};

struct GradientDigests {
  static constexpr Kind kKind{"digests", kToMember,
                              "the digests of those tensors of a rank gradient that a member of a model replica has "
                              "computed, to the others; and facts, from the member that computes the loss"};
  int vrank = 0;
  Blob digests = {};  // 128 bits each, in order
  double loss_sum = 0;
  int64_t correct = 0;

  ELINVAR_FIELDS(vrank, digests, loss_sum, correct)
};

struct Fetch {
  static constexpr Kind kKind{"fetch", kToMember, "it lacks the result of `step`, which the other has"};
  std::string endpoint = {};

  ELINVAR_FIELDS(endpoint)
};

struct Audit {
  static constexpr Kind kKind{"audit", kToCoordinator, "claims on the audited step that differ"};
  Evidence evidence = {};

  ELINVAR_FIELDS(evidence)
};

}  // namespace elinvar::messages
