#pragma once
// The reduction of one step in one generation, without the network: it says what to send, takes received messages, and
// knows when the sum is complete. The tree is that of tensor/reduction_tree.h, whichever member holds which rank
// gradients, so the bits do not depend on the membership.
//
// Member b mod n, the owner of bucket b, completes it. Every member that holds rank gradients sends the owner their
// subtree roots (a *contribution*); the owner completes the tree, scales, and sends the *result* to all. Facts go round
// in the trailer (elastic/protocol/trailer_exchange.h).
//
// With ZeRO (elastic/protocol/optimizer_shards.h) the sum of a bucket of gradients goes only to the bucket's keepers,
// and a member sends its part of the trailer only once it has all that it keeps. From ZeRO's second stage on members
// keep no sums of other members' buckets: each rank gradient is contributed by itself (`by_rank`), bucket by bucket as
// its tensors come, and the owner adds it to what it has (TreeReducer), which is as many values as the tree has levels
// if rank gradients come in about the order of the tree.
//
// Members that form a group of GPUs may let the group reduce the tensors (elastic/protocol/group_exchange.h). Then
// there are no contributions or results.
//
// The messages are those of elastic/protocol/reduction_messages.h.
//
// One bucket may be audited (elastic/audit/sum_audit.h). Rank gradients that a member sent stay unchanged: the same
// roots can be sent again in the next generation. A member may contribute to a bucket as soon as its roots are complete
// in that bucket, while its last rank gradient is still being computed.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/buckets.h"
#include "tensor/reduction_tree.h"
#include "elastic/audit/sum_audit.h"
#include "elastic/protocol/group_exchange.h"
#include "elastic/protocol/trailer_exchange.h"

namespace elinvar {

// Copies tensors to host memory, which messages require. All copies are started before the first is waited for.
std::vector<Tensor> on_host(const std::vector<Tensor>& tensors);

// Returns the sum of a bucket as a message. `values` has the tensors of all buckets, or is empty.
messages::BucketResult result_of(const Buckets& buckets, int bucket, const std::vector<Tensor>& values);

class Exchange {
 public:
  struct Options {
    int vranks = 1, members = 1;
    // This member's index; -1: a listener that only receives results and the trailer (from a peer that already has
    // them).
    int me = 0;
    const Buckets* buckets = nullptr;  // null: there is only the trailer
    int gradients = 0;                 // tensors that are gradients; the others are batch statistics
    // The index of the member that reduces each bucket. If this is empty, member b % members reduces bucket b.
    std::vector<int> owners = {};
    // With ZeRO: the keepers of the first buckets; all members get the sums of the others. A member that only listens
    // gets none of these. Empty without ZeRO.
    std::vector<std::vector<int>> keepers = {};
    // With ZeRO: what this member still waits for, besides sums, before it sends its part of the trailer, for people;
    // "": nothing.
    std::function<std::string()> holds_back = {};
    // With ZeRO: members contribute each of their rank gradients by itself.
    bool by_rank = false;
    // Returns whether a member contributes to a bucket. In a model replica, one member contributes for all. Empty:
    // every member contributes to every bucket.
    std::function<bool(int member, int bucket)> contributes = {};
    // .. and whether this member's part of the trailer has the facts of its rank gradients.
    bool reports = true;
    // The audit of a bucket's sum; not if this member is alone or only listens, and not with a group.
    std::optional<SumAudit> audit = {};
    // The group of all members that reduces the tensors; without ZeRO `buckets` then contain whole tensors. All members
    // name it, or none. Not with `by_rank`.
    std::shared_ptr<GpuGroup> group = {};
    // Fault injection (elastic/session/worker_faults.h): called with each sum that this member has reduced, before it
    // is sent.
    std::function<void(int bucket, std::vector<Tensor>& sums)> spoil = {};
  };
  explicit Exchange(Options options);

  const std::optional<SumAudit>& audit() const { return options_.audit; }
  const std::optional<GroupExchange>& group() const { return group_; }

  // Contributes to one bucket, once: `roots` are all of the member's roots, and only their values in this bucket are
  // used; `count` is the number of targets in all its rank gradients. For a group, the roots are made on the side queue
  // for gradients (tensor/side_queue.h), or the queue follows what makes them.
  void contribute(int bucket, const std::vector<const Subtree*>& roots, int64_t count, const SendToMember& send);
  // With `by_rank`: contributes a rank gradient to one bucket. `slices` are those of the bucket, or none if the virtual
  // rank has no samples; `count` is the number of its targets.
  void contribute(int bucket, int vrank, const std::vector<Tensor>& slices, int64_t count, const SendToMember& send);
  // Contributes to the remaining buckets (with `by_rank`: to none) and the trailer. Only the first member's `digests`
  // of the state count. Roots may be sent again later, unless this member is alone: then they are consumed.
  void contribute(std::vector<Subtree> roots, const messages::TrailerPart& part, const StateDigests& digests,
                  const SendToMember& send);
  // Takes a message of this exchange. Returns "" or why the message is invalid.
  std::string receive(const Message& message, const SendToMember& send);
  // Reduces one bucket that is ready, on the caller's CPU stream. Returns false if there is none.
  bool work(const SendToMember& send);
  // Returns whether this member has yet to make its part of the trailer, and perhaps some buckets.
  bool owes() const { return options_.me >= 0 && !part_ && !trailer_.contributed(); }
  // With ZeRO: whether this member's part of the trailer is sent. Others may have completed the step then.
  bool promised() const { return trailer_.contributed(); }
  bool listens() const { return options_.me < 0; }
  // Sends the part of the trailer if nothing holds it back. Returns whether it did.
  bool send_part(const SendToMember& send);
  bool complete() const;
  std::string missing() const;  // what has not arrived yet, for people; "" if nothing is awaited

  // Tensors and trailer of a complete exchange.
  std::vector<Tensor> values() const { return values_; }
  const messages::Trailer& trailer() const { return *trailer_.trailer(); }
  // With ZeRO: the sums of the buckets that this member keeps, as slices. values() has only batch statistics then.
  std::map<int, std::vector<Tensor>> take_sums();

 private:
  struct Bucket {
    int leaves = 0;     // rank gradients received
    int64_t count = 0;  // targets in them
    std::vector<Subtree> roots;
    bool contributed = false;  // by this member
    bool done = false;
  };
  bool sharded(int bucket) const { return static_cast<size_t>(bucket) < options_.keepers.size(); }
  int owner(int bucket) const {
    return options_.owners.empty() ? bucket % options_.members : options_.owners[static_cast<size_t>(bucket)];
  }
  bool owned(int bucket) const { return options_.me >= 0 && owner(bucket) == options_.me; }
  bool audited(int bucket) const { return options_.audit && options_.audit->roles().bucket == bucket; }
  bool keeps(int member, int bucket) const;  // with ZeRO
  bool gets_sum(int member, int bucket) const;
  int bucket_count() const { return options_.buckets ? options_.buckets->count() : 0; }
  std::string receive_roots(const messages::BucketRoots& told, Bucket& bucket);
  std::string receive(const messages::Contribution& contribution);
  std::string receive(const messages::Check& check);
  std::string receive(const messages::BucketResult& result);
  void give(int bucket, std::vector<Subtree> roots, int64_t count, const SendToMember& send);
  bool reduce_arrived();
  bool reduce_in_group(const SendToMember& send);
  static void take(Bucket& bucket, std::vector<Subtree> roots, int64_t count);
  std::vector<Tensor> add_up(int b, Bucket& bucket);
  bool audit_sum(const SendToMember& send);
  void claim(const SumClaim& claim, const SendToMember& send);
  void place(int bucket, std::vector<Tensor> slices);
  void keep(int bucket, std::vector<Tensor> slices);
  std::string missing_buckets() const;

  Options options_;
  TrailerExchange trailer_;
  std::optional<GroupExchange> group_;
  std::vector<Bucket> state_;
  std::set<int> arrived_;  // with `by_rank`: buckets that this member owns, with rank gradients that are not yet added
  std::vector<Tensor> values_;
  std::map<int, std::vector<Tensor>> sums_;  // with ZeRO
  std::vector<messages::SumFacts> facts_;    // with ZeRO: of the buckets that this member owns
  struct Part {
    messages::TrailerPart part;
    StateDigests digests;
  };
  std::optional<Part> part_;  // held back
  Bucket checked_;            // the audited bucket, as this member adds it up in addition to its owner
};

}  // namespace elinvar
