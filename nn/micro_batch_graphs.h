#pragma once
// Records the gradient computation of a network on a GPU as a graph (tensor/graph.h) and replays it. For the same
// network and batches of the same shape, the first call runs directly, the second is recorded, and later ones are
// replayed without a walk over the network. The bits are those of micro_batch_gradient(). See Note [Graphs] in
// tensor/README.md.
//
// A call runs directly if it cannot be replayed: on the CPU, while ops report to a recorder, if other processes compute
// some of its virtual shards, and if its work cannot be recorded or memory runs out, which is reported to `notice`
// once.
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>

#include "nn/micro_batch.h"

namespace elinvar {

class MicroBatchGraphs {
 public:
  explicit MicroBatchGraphs(std::function<void(const std::string&)> notice = {});
  ~MicroBatchGraphs();

  // Like micro_batch_gradient() of nn/micro_batch.h. Tensors passed to MicroBatchProgress, and `batch_statistics` if
  // there is a progress, stay valid until the next call. The result's statistics have only the names of their buffers.
  MicroBatchResult micro_batch_gradient(Network& network, const Inputs& input, const Targets& target, const Task& task,
                                        const Rng& rng, const Recompute& recompute = {},
                                        const MicroBatchProgress& progress = {}, ShardGroup& group = local_shards());

  void clear();  // drops all graphs; later calls record new ones

 private:
  struct Recorded;
  std::function<void(const std::string&)> notice_;
  std::set<std::string> said_;
  std::list<Recorded> kept_;  // the one used last comes first
};

}  // namespace elinvar
