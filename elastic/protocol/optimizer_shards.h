#pragma once
// Which buckets' optimizer state a member keeps (ZeRO, ARRANGEMENT.md), and the moves of this state between members.
//
// A generation's record says who keeps each bucket (`keepers`) and who has its state when the generation begins
// (`holders`). Members that are to keep a bucket whose state they lack get it during the first step, which does not
// change that state. A member's part of the trailer says that it has the sums and the state of all buckets that it is
// to keep, so the trailer of the first step *commits* the new keepers; until then the holders' state counts.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "elastic/protocol/gradient_layout.h"
#include "elastic/protocol/member_outbox.h"

namespace elinvar {

class OptimizerShards {
 public:
  OptimizerShards(const MemberPosition& position, const GradientLayout& layout)
      : position_(position), layout_(layout) {}

  bool on() const;  // whether the current generation shards the optimizer's state
  int zero() const { return on() ? position_.generation->sharding->zero : 0; }
  // The stage of ZeRO with which members hold the state after `step` updates; 0: each has all of it.
  int held_with(int64_t step) const;
  int held_here() const { return zero_; }  // .. with which this worker does, once take_change() is made

  // --- The tables of the current generation.
  // The indexes of the members that get the sum of a bucket and keep its state; the first is its owner.
  const std::vector<int>& keepers(int bucket) const { return tables().keepers[static_cast<size_t>(bucket)]; }
  bool keeps(int member, int bucket) const {
    return std::ranges::find(keepers(bucket), member) != keepers(bucket).end();
  }
  const std::vector<int>& kept() const { return tables().kept; }  // the buckets that this member keeps
  // The buckets whose state after `step` updates this member provides, for a checkpoint or for other members.
  std::vector<int> provides(int64_t step) const;
  // The buckets that this member digests if the state after `step` updates is digested: all keepers of a bucket do, so
  // that they can be compared, or else its provider.
  std::vector<int> digested(int64_t step) const;
  int provider(int bucket, int64_t step) const;  // the index of the member that provides a bucket

  // --- State for other members.
  struct Give {
    PeerId to = 0;
    std::vector<int> buckets;
  };
  // Returns, once in a generation, the state that others need, if the state is that of its first step.
  std::vector<Give> take_gives();

  // --- State from other members.
  void receive(const Message& message, const messages::BucketState& state);
  std::string missing() const;  // what has not arrived yet, for people; "": this member can commit

  // --- Commits.
  void promise();                 // the member's part of the trailer is sent
  void committed(int64_t step);   // the trailer of the step has come
  void uncommitted();             // a fence has shown that nobody has the trailer
  void restored(int zero);        // the state of a checkpoint, or the initial state, is loaded: it holds all buckets
  void learned();                 // the state came from members: it holds no bucket
  void begins() { restored(0); }  // the generation is the first that shards the state, of which this member has all
  std::optional<messages::HeldShards> held() const;  // for the answer to a fence
  bool whole() const { return held_ && held_->whole; }
  // A change of what this member keeps, once after the commit, to be made before the update.
  struct Change {
    int zero_before = 1, zero = 1;                     // the stages with which members held the state, and will
    std::vector<int> kept = {};                        // the buckets that it keeps from now on
    std::map<int, messages::BucketState> gained = {};  // the state of those that came from other members
  };
  std::optional<Change> take_change();

  void prune();  // drops state of generations that no longer count

 private:
  struct Tables {
    int64_t number = -1;
    std::vector<std::vector<int>> keepers = {};  // indexes of members by bucket
    std::vector<int> kept = {};                  // buckets
    std::vector<int> providers = {};             // of the first state: indexes of members by bucket
    std::vector<std::vector<int>> lacks = {};    // by bucket: the keepers that lack its state
    std::vector<int> gains = {};                 // the buckets that this member lacks
  };
  const Tables& tables() const;
  struct Commit {
    int64_t step = 0, number = 0;
    BucketDeal deal = {};
    Change change = {};
  };

  const MemberPosition& position_;
  const GradientLayout& layout_;
  mutable Tables tables_;
  int64_t given_ = 0;                                                 // the last generation in which state was given
  std::map<std::pair<int64_t, int>, messages::BucketState> arrived_;  // by generation and bucket
  std::optional<Commit> promised_;
  std::optional<messages::HeldShards> held_;
  int zero_ = 0;  // the stage of ZeRO with which this worker holds the state, once the change is made
  std::optional<Change> change_;
};

}  // namespace elinvar
