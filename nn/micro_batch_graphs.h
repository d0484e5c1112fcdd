#pragma once
// Leaves that a GPU is given as a whole (tensor/graph.h): of the same network with batches of the same shape the first
// leaf is computed as it is called, the second is recorded, and from then on it is replayed, without a walk over the
// network. Bits are those of micro_batch_gradient(). Note [Graphs] in tensor/README.md.
//
// A leaf is computed as it is called where it cannot be replayed: on the CPU, while ops are told to a recorder, and
// where what it calls cannot be recorded or finds no memory, which `notice` says once.
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

  // As micro_batch_gradient() of nn/micro_batch.h. Of what MicroBatchProgress is told, and of `batch_statistics` where
  // there is one, the elements are there until the next leaf; the result's statistics name the buffers alone.
  MicroBatchResult micro_batch_gradient(Network& network, const Tensor& input, const Targets& target,
                                        const LossOptions& options, const Rng& rng, bool recompute = false,
                                        const MicroBatchProgress& progress = {});

  void clear();  // records anew what comes

 private:
  struct Recorded;
  std::function<void(const std::string&)> notice_;
  std::set<std::string> said_;
  std::list<Recorded> kept_;  // the one used last comes first
};

}  // namespace elinvar
