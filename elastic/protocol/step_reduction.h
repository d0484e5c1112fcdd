#pragma once
// A member's part in the reduction of one step: which rank gradients it computes, which it has, and their exchange with
// the other members.
//
// The last rank gradient of a step may come gradient by gradient, so that buckets leave while the rest of its backward
// pass runs: opens() says whether this one may, open() begins it once its targets are counted, put() adds a gradient,
// and add() ends it, with the same tensors. Gradients of a GPU are put by the thread that uses its side queue for
// gradients (tensor/side_queue.h), which the stream has joined by add().
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
    // Fault injection: damages what this member adds up in `step` (Exchange::spoil).
    std::function<void(int64_t step, int bucket, std::vector<Tensor>& sums)> spoil = {};
  };
  StepReduction(Options options, const MemberPosition& position, ExchangeInbox& inbox, StepAudit& audit,
                MemberGroups& groups);

  // --- The loop's. Sums are made on the CPU stream of the caller.
  bool knows_layout() const { return buckets_.has_value(); }
  // The virtual ranks that this member still has to compute, ascending, then one that is audited.
  std::vector<int> todo() const;
  // Whether the virtual rank is assigned to this member, so that its gradient counts; one that is audited need not be.
  bool owns(int vrank) const;
  void add(int64_t step, int vrank, RankGradient leaf, double seconds);  // one that comes too late is dropped
  bool opens(int vrank) const;
  void open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics);
  bool has_open() const { return leaves_.is_open(); }  // after a fence it may not be
  // With `passes` the value is there until add() alone: what is kept of it is a copy, made by one call for all that
  // came since the last whole bucket.
  void put(int gradient, Tensor value, bool passes = false);
  bool work();  // adds up one bucket that can be; false: there is none
  // Whether rank gradients of this step are added up where they are computed, by a group of GPUs or by this member
  // alone: then they are to lie on that device, else on the CPU.
  bool keeps_leaves() const;
  bool reduces_in_group() const;  // the group of this generation adds up the step
  // The device has no room for the next rank gradient beside those that it has: a member alone moves them to the CPU,
  // and does so from now on. False: nothing can be moved.
  bool let_leaves_go();
  std::string missing() const;  // for people: what the reduction waits for; "": nothing
  // Whether the reduction waits for a group, of which no message tells: reduce() is to be called again and again.
  bool transferring() const;
  int64_t progress() const;  // grows with what the group has done

  // --- The member's.
  bool learn_layout(const RankGradient& leaf);  // of one that has samples; true: it was not known before
  const Buckets* buckets() const { return buckets_ ? &*buckets_ : nullptr; }
  // Sends this member's share: `part` has what the member knows, and gets what is known here.
  void contribute(messages::TrailerPart part, const StateDigests& digests);
  void listen();                                                    // to an exchange of others, whose result is wanted
  enum class Progress { waiting, complete, disagreed, abandoned };  // disagreed: an audit has just found something
  Progress reduce();                                                // adds up what can be
  struct Result {
    std::vector<Tensor> values;
    messages::Trailer trailer;
    bool in_group = false;
  };
  Result take();                                // of a complete one, which ends
  Reduced reduced(const Result& result) const;  // for the loop
  void next_step();                             // drops the rank gradients

 private:
  const Buckets* step_buckets() const { return position_.last() ? nullptr : &*buckets_; }
  void begin();

  Options options_;
  const MemberPosition& position_;
  ExchangeInbox& inbox_;
  StepAudit& audit_;
  MemberGroups& groups_;
  std::optional<Buckets> buckets_;
  std::optional<Buckets> whole_buckets_;  // for groups of GPUs: no tensor is cut
  int gradients_ = 0;
  RankGradients leaves_;  // of step `completed`
  bool crowded_ = false;  // the device has no room for rank gradients
};

}  // namespace elinvar
