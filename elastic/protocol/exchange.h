#pragma once
// The reduction of one step in one generation, without the network: it says what to send, takes received messages, and
// knows when the sum is complete. The tree is that of comm/reduction_tree.h, whichever member holds which rank
// gradients, so the bits do not depend on the membership.
//
// Member b mod n, the owner of bucket b, completes it. Every member that holds rank gradients sends the owner their
// subtree roots (a *contribution*); the owner completes the tree, scales, and sends the *result* to all. The trailer
// works in the same way with member 0 as its owner, but every member sends a *part*, also a member without rank
// gradients.
//
// Members that form a group of GPUs may let the group reduce the tensors (comm/group_sum.h), in buckets of whole
// tensors. Then there are no contributions or results. As soon as a member contributes to a bucket, it tells all others
// which roots it has; when it knows the roots of all members, it starts the buckets to which it has contributed.
//
// The messages are those of elastic/protocol/reduction_messages.h.
//
// One bucket may be audited (elastic/audit/sum_audit.h). Rank gradients that a member sent stay unchanged: the same
// roots can be sent again in the next generation. A member may contribute to a bucket as soon as its roots are complete
// in that bucket, while its last rank gradient is still being computed.
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

// Copies tensors to host memory, which messages require. All copies are started before the first is waited for.
std::vector<Tensor> on_host(const std::vector<Tensor>& tensors);

// Returns the sum of a bucket as a message. `values` has the tensors of all buckets, or is empty.
messages::BucketResult result_of(const Buckets& buckets, int bucket, const std::vector<Tensor>& values);

class Exchange {
 public:
  using Send = std::function<void(int member, Payload)>;

  // `me` is this member's index among `members`; -1: a listener that only receives results and the trailer (from a peer
  // that already has them). Without `buckets` there is only the trailer.
  Exchange(int vranks, int members, int me, const Buckets* buckets, int gradients);

  // Audits the sum of a bucket. Call it before contributing, and not if this member is alone or only listens.
  void audit(SumAudit audit) { audit_ = std::move(audit); }
  const std::optional<SumAudit>& audit() const { return audit_; }
  // Digest of the audited sum as received from its owner.
  const std::optional<Digest>& received() const { return received_; }

  // Lets the group of all members reduce the tensors in these buckets. Call it before contributing. All members call
  // it, or none. Not allowed with an audit.
  void use(std::shared_ptr<GpuGroup> group, const Buckets* whole);
  bool in_group() const { return group_ != nullptr; }
  bool transferring() const { return sum_ != nullptr; }             // the group is at work; work() advances it
  int64_t progress() const { return sum_ ? sum_->progress() : 0; }  // grows as the group makes progress
  const std::string& trouble() const { return trouble_; }           // why the group will not finish, or ""
  const Buckets& buckets() const { return *buckets_; }              // requires that there are buckets

  // Contributes to one bucket, once: `roots` are all of the member's roots, and only their values in this bucket are
  // used; `count` is the number of targets in all its rank gradients. For a group, the roots are made on the side queue
  // for gradients (tensor/side_queue.h), or the queue follows what makes them.
  void contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count, const Send& send);
  // Contributes to the remaining buckets and the trailer. Only the first member's `digests` of the state count. Roots
  // may be sent again later, unless this member is alone: then they are consumed.
  void contribute(std::vector<Subtree> roots, const messages::TrailerPart& part, const StateDigests& digests,
                  const Send& send);
  static bool takes(const Message& message);
  // Returns the attempt of the state transfer that a result or trailer for a learner belongs to (Member); 0 for others.
  static int64_t attempt_of(const Message& message);
  // Takes a message of this exchange. Returns "" or why the message is invalid.
  std::string receive(const Message& message, const Send& send);
  // Reduces one bucket that is ready, on the caller's CPU stream. Returns false if there is none.
  bool work(const Send& send);
  // Fault injection (elastic/session/worker_faults.h): called with each sum that this member has reduced, before it is
  // sent.
  void spoil(std::function<void(int bucket, std::vector<Tensor>& sums)> spoil) { spoil_ = std::move(spoil); }
  // Returns whether this member has yet to send its part of the trailer, and perhaps some buckets.
  bool owes() const { return me_ >= 0 && !told_; }
  bool complete() const;
  std::string missing() const;  // what has not arrived yet, for people; "" if nothing is awaited

  // Tensors and trailer of a complete exchange.
  std::vector<Tensor> values() const { return values_; }
  const messages::Trailer& trailer() const { return *trailer_; }

 private:
  struct Bucket {
    int leaves = 0;     // rank gradients received
    int64_t count = 0;  // targets in them
    std::vector<Subtree> roots;
    bool contributed = false;  // by this member
    bool given = false;        // passed to the group
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
  StateDigests digests_;  // digests of the state in this process
  std::optional<messages::Trailer> trailer_;
  std::optional<SumAudit> audit_;
  Bucket checked_;  // the audited bucket, as this member adds it up in addition to its owner
  std::optional<Digest> received_;
  std::function<void(int, std::vector<Tensor>&)> spoil_;
  std::shared_ptr<GpuGroup> group_;
  std::map<int, std::vector<GroupRoot>> group_roots_;  // roots of the members that have told them
  int64_t group_count_ = 0;                            // targets in their rank gradients
  std::unique_ptr<GroupSum> sum_;
  std::string trouble_;
};

}  // namespace elinvar
