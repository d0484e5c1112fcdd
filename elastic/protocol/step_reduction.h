#pragma once
// A member's part in the reduction of one step: the rank gradients that it computes and holds, and their exchange with
// the other members.
//
// The last rank gradient of a step may be put tensor by tensor, so that buckets are sent while the rest of its backward
// pass runs: opens() says whether this one may, open() begins it once its targets are counted, put() adds a gradient,
// and add() ends it, with the same tensors. Gradients on a GPU are put by the thread that uses its side queue for
// gradients (tensor/side_queue.h), which the stream has joined by the time of add().
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/exchange_inbox.h"
#include "elastic/protocol/member_groups.h"
#include "elastic/protocol/rank_gradients.h"
#include "elastic/protocol/step_audit.h"

namespace elinvar {

class StepReduction {
 public:
  struct Options {
    int vranks = 1;
    int64_t bucket_elements = 1 << 20;
    // Fault injection: damages the sums that this member makes in `step` (Exchange::spoil).
    std::function<void(int64_t step, int bucket, std::vector<Tensor>& sums)> spoil = {};
  };
  StepReduction(Options options, const MemberPosition& position, ExchangeInbox& inbox, StepAudit& audit,
                MemberGroups& groups);

  // --- Called by the loop. Sums are made on the caller's CPU stream.
  bool knows_layout() const { return buckets_.has_value(); }
  // Returns the virtual ranks that this member still has to compute, ascending, followed by an audited one.
  std::vector<int> todo() const;
  // Returns whether the virtual rank is assigned to this member, so that its gradient counts; an audited one may not
  // be.
  bool owns(int vrank) const;
  void add(int64_t step, int vrank, RankGradient leaf, double seconds);  // drops a gradient that comes too late
  bool opens(int vrank) const;
  void open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics);
  bool has_open() const { return leaves_.is_open(); }  // false after a fence in some cases
  // With `passes` the value is valid only until add(): one call copies all such values put since the last complete
  // bucket.
  void put(int gradient, Tensor value, bool passes = false);
  bool work();  // reduces one bucket that is ready; returns false if there is none
  // Returns whether rank gradients of this step are reduced on the device that computes them, by a group of GPUs or by
  // this member alone. Then they must be on that device, else on the CPU.
  bool keeps_leaves() const;
  bool reduces_in_group() const;  // the group of this generation reduces the step
  // The device has no room for the next rank gradient in addition to the existing ones: a member that is alone moves
  // them to the CPU, and keeps doing so. Returns false if nothing can be moved.
  bool let_leaves_go();
  std::string missing() const;  // what the reduction waits for, for people, or ""
  // Returns the progress of a group of GPUs, which grows, while the reduction waits for it; else null. No message
  // announces it, so call reduce() repeatedly.
  std::optional<int64_t> group_progress() const;

  // --- Called by the member.
  bool learn_layout(const RankGradient& leaf);  // `leaf` has samples; true: the layout was not known before
  const Buckets* buckets() const { return buckets_ ? &*buckets_ : nullptr; }
  // Sends this member's share. `part` holds what the member knows; contribute() adds the rest.
  void contribute(messages::TrailerPart part, const StateDigests& digests);
  void listen();  // listens to an exchange of other members to get its result
  enum class Progress { waiting, complete, disagreed, abandoned };  // disagreed: an audit has just found a difference
  Progress reduce();                                                // reduces buckets that are ready
  struct Result {
    std::vector<Tensor> values;
    messages::Trailer trailer;
    bool in_group = false;
  };
  Result take();                                // ends a complete reduction
  Reduced reduced(const Result& result) const;  // the result as the loop sees it
  void next_step();                             // drops the rank gradients

 private:
  const Buckets* step_buckets() const { return position_.last() ? nullptr : &*buckets_; }
  const Buckets* begin();  // begins the exchange, and returns its buckets

  Options options_;
  const MemberPosition& position_;
  ExchangeInbox& inbox_;
  StepAudit& audit_;
  MemberGroups& groups_;
  std::optional<Buckets> buckets_;
  std::optional<Buckets> whole_buckets_;  // for groups of GPUs, which do not cut tensors
  int gradients_ = 0;
  RankGradients leaves_;  // the rank gradients of step `completed`
  bool crowded_ = false;  // the device has no room for rank gradients
};

}  // namespace elinvar
