#pragma once
// The members of a stage of a model replica, with which a session computes virtual shards (tensor parallelism): the
// group passes their values through the session's messages (elastic/protocol/replica_exchange.h).
#include <chrono>
#include <map>
#include <vector>

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
  // Sends values (ReplicaExchange::send), and returns what the other members have sent, by their indexes.
  template <class Values>
  std::map<int, messages::ShardValues> exchanged(Values&& own, const ReplicaExchange::Fits& fits);
  std::vector<Subtree> exchanged(std::vector<Subtree> own, const ReplicaExchange::Fits& fits);
  Tensor sliced_sum(std::vector<Subtree> own, int count);

  Session::Impl& session_;
  // Of the rank gradient; another generation may have begun since.
  ShardRange own_;
  int count_ = 1, me_ = 0;
  double portion_ = 1;
  std::vector<int> members_;
  std::chrono::duration<double> waited_{};
};

}  // namespace elinvar
