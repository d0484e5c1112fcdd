#pragma once
// Tensor and pipeline parallelism: the model replica that a member is in, which computes its rank gradients together,
// and the tensors and buckets of these that the member contributes (elastic/step/model_replicas.h). A member has the
// gradients of its stage's segments: those of its own virtual shards and all that are not cut. Of the latter, which all
// members of the stage have, each contributes some buckets. Otherwise a member is a replica by itself.
#include <algorithm>
#include <map>
#include <vector>

#include "elastic/protocol/gradient_layout.h"
#include "elastic/protocol/member_position.h"
#include "elastic/step/pipeline.h"

namespace elinvar {

// Which members contribute which buckets of rank gradients, and which member adds up each of them.
struct Contributions {
  int members = 0, me = 0;                        // their number, and the index of this one
  std::vector<int> replicas = {};                 // of each member; empty: each is its own
  std::vector<std::vector<int>> of_buckets = {};  // one member of each replica; empty: all contribute to all buckets
  std::vector<int> owners = {};    // by bucket: who adds it up if its keepers do not, one of these members in turn
  std::vector<bool> tensors = {};  // those of which this member contributes some bucket; empty: all
  int absent_buckets = 0;          // those that this member does not compute

  bool contributes(int member, int bucket) const;
  bool contributes(int bucket) const { return contributes(me, bucket); }
  bool contributes_to(int tensor) const { return tensors.empty() || tensors[static_cast<size_t>(tensor)]; }
  size_t absent_tensors() const { return static_cast<size_t>(std::ranges::count(tensors, false)); }
  int owner(int bucket) const;
};

class ModelReplica {
 public:
  ModelReplica(const MemberPosition& position, const GradientLayout& layout) : position_(position), layout_(layout) {}

  // The members of some replica compute rank gradients together.
  bool divides() const { return position_.generation && position_.generation->shards > 0; }
  bool divided() const { return members().size() > 1; }       // several members compute this member's rank gradients
  bool staged() const { return tables().stages.size() > 1; }  // .. in several stages
  const ReplicaPlace& place() const { return place_of(position_.index); }
  const ReplicaPlace& place_of(int member) const;
  int of_shards() const { return position_.generation->shards; }
  // The indexes of the members, ascending, this one among them; none if it is not active.
  const std::vector<int>& members() const;
  const std::vector<std::vector<int>>& stages() const { return tables().stages; }  // .. by stage
  const std::vector<int>& stage() const { return tables().stages.at(static_cast<size_t>(place().stage)); }
  const std::vector<PipelineRun>& runs() const { return tables().runs; }  // if it is staged
  // Returns the passes of this member's stage for these virtual ranks, in order.
  std::vector<PipelinePass> passes(const std::vector<int>& vranks) const;
  // Whether this member reports the facts of the replica's rank gradients: the first one that computes the loss.
  bool reports() const { return !divided() || tables().reporter == position_.index; }
  int reporter() const { return tables().reporter; }
  // Returns the gradients and batch statistics that a member of the replica computes, ascending. Requires the layout.
  std::vector<int> tensors_of(int member) const;
  // Returns which member contributes to each bucket. The buckets must be of the layout; if members compute rank
  // gradients together, a bucket must not mix tensors of several parts. Valid until the next generation.
  const Contributions& contributions(const Buckets& buckets) const;

 private:
  struct Tables {
    int64_t number = -1;
    std::vector<std::vector<int>> replicas = {};  // the members of each
    std::vector<std::vector<int>> stages = {};
    std::vector<PipelineRun> runs = {};
    int reporter = -1;
    std::map<const Buckets*, Contributions> contributions = {};
  };
  const Tables& tables() const;
  Contributions deal(const Buckets& buckets) const;
  std::vector<int> having(const std::vector<int>& members, const NetworkPart& part) const;

  const MemberPosition& position_;
  const GradientLayout& layout_;
  mutable Tables tables_;
};

}  // namespace elinvar
