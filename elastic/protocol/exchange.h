#pragma once
// The reduction of one step in one generation, without the network: it says what is to be sent, is told what has come,
// and knows when the sum is whole. The tree is that of comm/reduction_tree.h whoever holds which leaves, so the bits
// do not depend on who takes part.
//
// Bucket b is finished by member b mod n, its owner. Every member that holds leaves sends it their subtree roots (a
// *contribution*); the owner completes the tree, scales, and sends the *result* to all. The trailer works alike, owned
// by member 0, but has a *part* from every member, also from one without leaves:
//
//   kind            body                                                          blobs
//   contribution    bucket, count (targets in all its leaves), roots [[b, e, present]..]   of each present root: slices
//   result          bucket, present                                               slices
//   part            member, held, seconds, facts {vrank: ..}, state?, pace?, audit?       -
//   trailer         agreed, facts [..], state?, state_digests?, pace?, contradiction?, seconds [..], audit [..]? -
//
// Members that are a group of GPUs may let it add up the tensors (comm/group_sum.h), in buckets that have whole
// tensors. Then there are neither contributions nor results; each says to all which roots it has as soon as it
// contributes to a bucket, and when it knows those of all it begins with those buckets that it has contributed to:
//
//   roots           member, count, roots [[b, e, present]..]                      -
//
// One bucket may be audited (elastic/audit/sum_audit.h).
// Leaves that a member sent stay as they are: the same roots can be sent again in the next generation. A member may
// contribute to a bucket as soon as its roots are whole there, while its last leaf is still being computed.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "comm/group_sum.h"
#include "comm/reduction_tree.h"
#include "elastic/audit/sum_audit.h"
#include "elastic/step/step.h"

namespace elinvar {

// Messages are of the host's memory, wherever tensors are: all of them are on their way before the first is waited for.
std::vector<Tensor> on_host(const std::vector<Tensor>& tensors);

// What one member adds to the trailer.
struct TrailerPart {
  int64_t held = 0;                // the newest generation that it knows of
  double seconds = 0;              // a leaf takes; 0: it computed none
  std::map<int, LeafFacts> facts;  // of its virtual ranks
  std::optional<Digest> state;
  std::optional<Pace> pace = {};          // of the step
  std::optional<AuditClaims> audit = {};  // if it is audited; sums are told apart
  StateDigests state_digests = {};        // those of member 0 count: they stay with it
  int64_t group = 0;                      // the group of GPUs that this member is in (Member::group_name)
};

struct Trailer {
  int64_t agreed = 0;  // what every member holds: the least of the parts
  std::vector<LeafFacts> facts;
  std::optional<Digest> state;
  StateDigests state_digests;
  std::optional<Pace> pace;
  std::string contradiction;            // the digests of the state, or the paces, differ: who has which
  std::vector<double> seconds;          // of each member
  std::vector<AuditClaims> audit = {};  // of each member, if the step is audited
  int64_t group = 0;                    // the group of GPUs, if all members are in one
};

nlohmann::json to_json(const Trailer& trailer);
Trailer trailer_from(const nlohmann::json& json);

class Exchange {
 public:
  using Send = std::function<void(int member, Message)>;  // kind, body and blobs are set

  // Member `me` of `members`; -1: one that only listens to results and trailer (of a peer that has them already).
  // Without `buckets` there is only the trailer.
  Exchange(int vranks, int members, int me, const Buckets* buckets, int gradients);

  // Audits the sum of a bucket. Before anything is contributed, and not where this member is alone or only listens.
  void audit(SumAudit audit) { audit_ = std::move(audit); }
  const std::optional<SumAudit>& audit() const { return audit_; }
  const std::optional<Digest>& received() const { return received_; }  // of the audited sum, from its owner

  // Lets the group of all members add up the tensors, in these buckets. Before anything is contributed, as all do or
  // none; not with an audit.
  void use(std::shared_ptr<GpuGroup> group, const Buckets* whole);
  bool in_group() const { return group_ != nullptr; }
  bool transferring() const { return sum_ != nullptr; }             // the group is at work: work() looks how far it is,
  int64_t progress() const { return sum_ ? sum_->progress() : 0; }  // which this counts
  const std::string& trouble() const { return trouble_; }           // why it will not end, or ""
  const Buckets& buckets() const { return *buckets_; }              // of more than the trailer

  // To one bucket, once: all of the member's roots, of which only the values in this bucket are looked at, and the
  // number of targets in all its leaves. For a group they are made on the side queue for gradients
  // (tensor/side_queue.h), or that follows what makes them.
  void contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count, const Send& send);
  // To the other buckets, and to the trailer. Roots may be sent again later unless this member is alone: then they are
  // consumed.
  void contribute(std::vector<Subtree> roots, const TrailerPart& part, const Send& send);
  static bool takes(const std::string& kind);
  // A message of this exchange; what it cannot be is answered with a text that says why.
  std::string receive(const Message& message, const Send& send);
  // Adds up one bucket that can be, on the CPU stream of the caller; false if there is none.
  bool work(const Send& send);
  // A drill (elastic/session/self_sabotage.h): called with each sum that this member adds up, before anybody gets it.
  void spoil(std::function<void(int bucket, std::vector<Tensor>& sums)> spoil) { spoil_ = std::move(spoil); }
  bool owes() const { return me_ >= 0 && !told_; }  // this member's part of the trailer, and so perhaps buckets
  bool complete() const;
  std::string missing() const;  // what has not come, for people; "" if nothing is awaited

  // Of a complete one: tensors, and the trailer.
  std::vector<Tensor> values() const { return values_; }
  const Trailer& trailer() const { return *trailer_; }

 private:
  struct Bucket {
    int leaves = 0;     // that have come
    int64_t count = 0;  // targets in them
    std::vector<Subtree> roots;
    bool contributed = false;  // by this member,
    bool given = false;        // and to the group
    bool done = false;
  };
  bool owned(int bucket) const { return me_ >= 0 && bucket % members_ == me_; }
  int bucket_count() const { return buckets_ ? buckets_->count() : 0; }
  std::string receive_contribution(const Message& message, Bucket& bucket);
  std::string receive_roots(const Message& message);
  void tell_roots(const std::vector<const Subtree*>& roots, int64_t count, const Send& send);
  bool work_in_group();
  static void take(Bucket& bucket, std::vector<Subtree> roots, int64_t count);
  std::vector<Tensor> add_up(int b, Bucket& bucket);
  bool audit_sum(const Send& send);
  void claim(const SumClaim& claim, const Send& send);
  std::string receive_result(const Message& message);
  std::string receive_part(const Message& message, const Send& send);
  std::string receive_trailer(const Message& message);
  void add_part(int member, TrailerPart part, const Send& send);
  void place(int bucket, std::vector<Tensor> slices);

  int vranks_, members_, me_;
  const Buckets* buckets_;
  int gradients_;
  bool told_ = false;
  std::vector<Bucket> state_;
  std::vector<Tensor> values_;
  std::map<int, TrailerPart> parts_;
  std::optional<Trailer> trailer_;
  std::optional<SumAudit> audit_;
  Bucket checked_;  // of the audited bucket: what this member adds up besides its owner
  std::optional<Digest> received_;
  std::function<void(int, std::vector<Tensor>&)> spoil_;
  std::shared_ptr<GpuGroup> group_;
  std::map<int, std::vector<GroupRoot>> group_roots_;  // of members that have told them,
  int64_t group_count_ = 0;                            // and targets in them
  std::unique_ptr<GroupSum> sum_;
  std::string trouble_;
};

// The messages by which one that has a result gives it to another: buckets, then the trailer.
void give(const Buckets* buckets, const std::vector<Tensor>& values, const Trailer& trailer,
          const std::function<void(Message)>& send);

}  // namespace elinvar
