#pragma once
// The members of a stage of a model replica, with which a session computes virtual shards (tensor parallelism). Their
// values go from GPU to GPU if the generation has agreed on a group of GPUs (PROTOCOL.md), otherwise by messages
// (elastic/protocol/replica_exchange.h).
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "comm/gpu_group.h"
#include "elastic/protocol/replica_exchange.h"
#include "elastic/session/session.h"
#include "tensor/reduction_tree.h"
#include "tensor/shard_group.h"

namespace elinvar {

class ReplicaShards final : public ShardGroup {
 public:
  explicit ReplicaShards(Session::Impl& session);

  // A rank gradient, or a pass of it, begins in the stage of this replica of which the session is member `me`. Requires
  // the session's lock.
  void begin(const ModelReplica& replica, int me);
  bool several() const { return members_.size() > 1; }
  // Returns how long this has been, without the time in which members waited for each other.
  double worked(std::chrono::duration<double> seconds) const { return (seconds - waited_).count(); }
  double portion() const { return portion_; }  // the part of a rank gradient's work that this member does

  // These throw Session::StepOver if the rank gradient is over.
  ShardRange own(int count) const override;
  Tensor sum(std::vector<Tensor> values, int count) override;
  std::vector<Tensor> gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) override;

 private:
  // Nodes of the tree over virtual shards, or slices of them, with a tensor each.
  using Values = std::vector<Subtree>;
  // The values that each other member sends, by its index.
  using Expected = std::map<int, std::vector<messages::ShardValue>>;

  // Sends values to the other members, `Own` being the same for all or a map of those for each, and returns what they
  // send, on the device.
  template <class Own>
  std::map<int, Values> exchanged(const Own& own, const Expected& expected, Device device);
  template <class Own>
  std::map<int, Values> by_messages(const Own& own, const Expected& expected, Device device);
  template <class Own>
  std::map<int, Values> by_group(const Own& own, const Expected& expected, Device device);
  Expected nodes_like(const Shape& shape, DType dtype) const;  // those that the others' shards make
  Tensor sliced_sum(Values own);

  Session::Impl& session_;
  // These three belong to the rank gradient; another generation may have begun since.
  ShardRange own_;
  int count_ = 1, me_ = 0;
  double portion_ = 1;
  std::vector<int> members_;
  std::map<int, Interval> shards_;   // of the other members, by index
  std::shared_ptr<GpuGroup> group_;  // null: by messages
  std::chrono::duration<double> waited_{};
};

}  // namespace elinvar
