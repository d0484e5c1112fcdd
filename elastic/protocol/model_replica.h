#pragma once
// Tensor parallelism: the model replica that a member is in, which computes its rank gradients together, and the
// tensors and buckets of these that the member contributes (elastic/step/model_replicas.h). A member has the gradients
// of its own virtual shards and of all that is not cut; of the latter, which all members of the replica have, each
// contributes some buckets. Without tensor parallelism a member is a replica by itself.
#include <vector>

#include "elastic/protocol/gradient_layout.h"
#include "elastic/protocol/member_position.h"

namespace elinvar {

class ModelReplica {
 public:
  ModelReplica(const MemberPosition& position, const GradientLayout& layout) : position_(position), layout_(layout) {}

  bool divides() const { return layout_.divided(); }            // the job has tensor parallelism
  bool divided() const { return tables().indexes.size() > 1; }  // several members compute this member's rank gradients
  int number() const;
  Interval shards() const;  // that this member computes
  int of_shards() const { return position_.generation->shards; }
  // The indexes of the members, ascending, this one among them; none if it is not active.
  const std::vector<int>& members() const { return tables().indexes; }
  // Whether this member reports the facts of the replica's rank gradients.
  bool reports() const;
  bool contributes(int bucket) const;  // this member, and no other of its replica
  // The member that adds up the bucket, if its keepers do not: one of those that contribute to it, in turn.
  int owner(int bucket) const;
  bool contributes_to(int tensor) const;  // to some bucket of the tensor
  size_t absent_tensors() const;          // the number of those that contributes_to() denies
  int absent_buckets() const;             // the number of buckets of virtual shards that others compute

 private:
  struct Tables {
    int64_t number = -1;
    int buckets = -1;
    std::vector<int> indexes = {};
    std::vector<bool> contributed = {};  // by bucket
    std::vector<int> owners = {};        // by bucket
    std::vector<bool> needed = {};       // by tensor
    int absent = 0;                      // buckets
  };
  const Tables& tables() const;
  const ReplicaPlace& place_of(int member) const;

  const MemberPosition& position_;
  const GradientLayout& layout_;
  mutable Tables tables_;
};

}  // namespace elinvar
