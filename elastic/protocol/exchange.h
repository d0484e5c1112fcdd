#pragma once
// The reduction of one step in one generation, without the network: it says what is to be sent, is told what has come,
// and knows when the sum is whole. The tree is that of comm/reduction_tree.h whoever holds which leaves, so the bits
// do not depend on who takes part.
//
// Bucket b is finished by member b mod n, its owner. Every member that holds leaves sends it their subtree roots (a
// *contribution*); the owner completes the tree, scales, and sends the *result* to all. The trailer works alike, owned
// by member 0, but has a *part* from every member, also from one without leaves:
//
// Members that are a group of GPUs may let it add up the tensors (comm/group_sum.h), in buckets that have whole
// tensors. Then there are neither contributions nor results; each says to all which roots it has as soon as it
// contributes to a bucket, and when it knows those of all it begins with those buckets that it has contributed to.
//
// The messages are those of elastic/protocol/reduction_messages.h.
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
#include "elastic/protocol/message.h"

namespace elinvar {

// Messages are of the host's memory, wherever tensors are: all of them are on their way before the first is waited for.
std::vector<Tensor> on_host(const std::vector<Tensor>& tensors);

// The sum of a bucket as a message, from tensors of all buckets, or none.
messages::BucketResult result_of(const Buckets& buckets, int bucket, const std::vector<Tensor>& values);

class Exchange {
 public:
  using Send = std::function<void(int member, Payload)>;

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
  // To the other buckets, and to the trailer; `digests` of the state count if they are the first member's. Roots may be
  // sent again later unless this member is alone: then they are consumed.
  void contribute(std::vector<Subtree> roots, const messages::TrailerPart& part, const StateDigests& digests,
                  const Send& send);
  static bool takes(const Message& message);
  // To give a learner its state (Member), of a result or trailer; else 0.
  static int64_t attempt_of(const Message& message);
  // A message of this exchange; what it cannot be is answered with a text that says why.
  std::string receive(const Message& message, const Send& send);
  // Adds up one bucket that can be, on the CPU stream of the caller; false if there is none.
  bool work(const Send& send);
  // Fault injection (elastic/session/worker_faults.h): called with each sum that this member adds up, before it is
  // sent.
  void spoil(std::function<void(int bucket, std::vector<Tensor>& sums)> spoil) { spoil_ = std::move(spoil); }
  bool owes() const { return me_ >= 0 && !told_; }  // this member's part of the trailer, and so perhaps buckets
  bool complete() const;
  std::string missing() const;  // what has not come, for people; "" if nothing is awaited

  // Of a complete one: tensors, and the trailer.
  std::vector<Tensor> values() const { return values_; }
  const messages::Trailer& trailer() const { return *trailer_; }

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
  std::string receive_roots(const messages::BucketRoots& told, Bucket& bucket);
  std::string receive(const messages::Contribution& contribution);
  std::string receive(const messages::Check& check);
  std::string receive(const messages::BucketResult& result);
  std::string receive(const messages::TrailerPart& part, const Send& send);
  std::string receive(const messages::Trailer& trailer);
  std::string receive(const messages::GroupRoots& roots);
  void tell_roots(const std::vector<const Subtree*>& roots, int64_t count, const Send& send);
  bool work_in_group();
  static void take(Bucket& bucket, std::vector<Subtree> roots, int64_t count);
  std::vector<Tensor> add_up(int b, Bucket& bucket);
  bool audit_sum(const Send& send);
  void claim(const SumClaim& claim, const Send& send);
  void add_part(messages::TrailerPart part, const Send& send);
  void place(int bucket, std::vector<Tensor> slices);

  int vranks_, members_, me_;
  const Buckets* buckets_;
  int gradients_;
  bool told_ = false;
  std::vector<Bucket> state_;
  std::vector<Tensor> values_;
  std::map<int, messages::TrailerPart> parts_;
  StateDigests digests_;  // of the state, here
  std::optional<messages::Trailer> trailer_;
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

}  // namespace elinvar
