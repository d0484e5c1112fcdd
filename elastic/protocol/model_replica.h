#pragma once
// Tensor and pipeline parallelism: the model replica that a member is in, which computes its rank gradients together,
// and the tensors and buckets of these that the member contributes (elastic/step/model_replicas.h). A member has the
// gradients of its stage's segments: those of its own virtual shards and all that are not cut. Of the latter, which all
// members of the stage have, each contributes some buckets. Otherwise a member is a replica by itself.
#include <vector>

#include "elastic/protocol/gradient_layout.h"
#include "elastic/protocol/member_position.h"
#include "elastic/step/pipeline.h"

namespace elinvar {

class ModelReplica {
 public:
  ModelReplica(const MemberPosition& position, const GradientLayout& layout) : position_(position), layout_(layout) {}

  // The members of some replica compute rank gradients together.
  bool divides() const { return position_.generation && position_.generation->shards > 0; }
  bool divided() const { return tables().indexes.size() > 1; }  // several members compute this member's rank gradients
  bool staged() const { return tables().stages.size() > 1; }    // .. in several stages
  const ReplicaPlace& place() const { return place_of(position_.index); }
  const ReplicaPlace& place_of(int member) const;
  int of_shards() const { return position_.generation->shards; }
  // The indexes of the members, ascending, this one among them; none if it is not active.
  const std::vector<int>& members() const { return tables().indexes; }
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
  bool contributes(int bucket) const;  // this member, and no other of its replica
  // The member that adds up the bucket, if its keepers do not: one of those that contribute to it, in turn.
  int owner(int bucket) const;
  bool contributes_to(int tensor) const;  // to some bucket of the tensor
  size_t absent_tensors() const;          // the number of those that contributes_to() denies
  int absent_buckets() const;             // the number of buckets that this member does not compute

 private:
  struct Tables {
    int64_t number = -1;
    int buckets = -1;
    std::vector<int> indexes = {};
    std::vector<std::vector<int>> stages = {};
    std::vector<PipelineRun> runs = {};
    int reporter = -1;
    std::vector<bool> contributed = {};  // by bucket
    std::vector<int> owners = {};        // by bucket
    std::vector<bool> needed = {};       // by tensor
    int absent = 0;                      // buckets
  };
  const Tables& tables() const;
  void deal_buckets(const std::vector<std::vector<int>>& replicas) const;
  std::vector<int> having(const std::vector<int>& members, const NetworkPart& part) const;

  const MemberPosition& position_;
  const GradientLayout& layout_;
  mutable Tables tables_;
};

}  // namespace elinvar
