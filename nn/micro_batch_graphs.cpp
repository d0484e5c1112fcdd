#include "nn/micro_batch_graphs.h"

#include <algorithm>
#include <utility>

#include "autograd/precision.h"
#include "nn/micro_batch_passes.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"
#include "tensor/ops/copies.h"
#include "tensor/trace.h"

namespace elinvar {
namespace {

constexpr size_t kMost = 4;  // for a batch, the short one at the end of an epoch, and those of growing batches

struct Kind {
  Shape shape;
  DType dtype = DType::f32;
  Device device;
  bool operator==(const Kind&) const = default;
};
Kind kind_of(const Tensor& t) { return t.defined() ? Kind{t.shape(), t.dtype(), t.device()} : Kind{}; }

// The fixed properties of a recorded micro-batch.
struct Signature {
  const Network* network;
  std::vector<const void*> parameters;  // their addresses
  std::vector<Kind> inputs;
  bool mixed, recompute;
  std::string task;
  Precision precision;
  bool operator==(const Signature&) const = default;

  explicit Signature(const MicroBatchWork& work)
      : network(&work.network),
        inputs{kind_of(work.input.first), kind_of(work.target.own)},
        mixed(work.target.other.defined()),
        recompute(work.recompute.on),
        task(work.task->key()),
        precision(product_precision()) {
    for (const Tensor& further : work.input.further) inputs.push_back(kind_of(further));
    for (const Parameter& p : work.network.parameters.list) parameters.push_back(p.var.value().raw());
  }
};

GraphInputs inputs_of(const MicroBatchWork& work) {
  GraphInputs inputs{.tensors = {work.input.first, work.target.own, work.target.other, work.target.share},
                     .rng = work.rng};
  inputs.tensors.insert(inputs.tensors.end(), work.input.further.begin(), work.input.further.end());
  return inputs;
}

}  // namespace

struct MicroBatchGraphs::Recorded {
  struct Gradient {
    size_t parameter;
    Tensor tensor;
    Mark since;
  };

  Signature signature;
  bool refused = false;
  std::unique_ptr<Graph> graph = {};  // must outlive the tensors in its memory
  ForwardPass forward = {};
  Mark forward_since = {};
  std::vector<Gradient> gradients = {};  // in the order in which they become ready

  void record(const MicroBatchWork& work, Device device) {
    const auto passes = [&](std::span<const Tensor> given) {
      const MicroBatchWork inside{work.network,
                                  Inputs(given[0], {given.begin() + 4, given.end()}),
                                  Targets(given[1], given[2], given[3]),
                                  work.task,
                                  work.rng,
                                  work.recompute,
                                  work.group};
      try {
        run_passes(
            inside, /*early=*/true,
            [&](ForwardPass pass) {
              std::vector<Tensor> complete{pass.loss};
              if (pass.top1.defined()) complete.push_back(pass.top1);
              complete.insert(complete.end(), pass.batch_statistics.begin(), pass.batch_statistics.end());
              for (Statistic& s : pass.statistics) s.batch = {};
              forward = std::move(pass);
              forward_since = mark(complete);
            },
            [&](size_t i, Tensor gradient) {
              Mark since = mark({&gradient, 1});
              gradients.push_back({i, std::move(gradient), std::move(since)});
            });
      } catch (...) {  // nothing may be left in the graphs' memory
        forward = {};
        gradients.clear();
        for (Parameter& p : work.network.parameters.list) p.var.clear_grad();
        throw;
      }
    };
    graph = std::make_unique<Graph>(device, inputs_of(work), passes);
  }

  // If `progress` takes gradients one by one, passes it the tensors in the graph's memory; otherwise passes copies.
  MicroBatchResult replay(const MicroBatchWork& work, const MicroBatchProgress& progress) {
    graph->replay(inputs_of(work));
    GradientDelivery delivery(work, progress);
    ForwardPass pass = forward;
    if (progress.gradient) {
      delivery.forward(std::move(pass), forward_since);
      for (const Gradient& g : gradients) delivery.gradient(g.parameter, g.tensor, g.since);
      return delivery.finish();
    }
    std::vector<Tensor> made = pass.batch_statistics;
    for (const Gradient& g : gradients) made.push_back(g.tensor);
    made = copies(made);
    std::ranges::move(made.begin(), made.end() - std::ssize(gradients), pass.batch_statistics.begin());
    delivery.forward(std::move(pass), forward_since);
    for (size_t i = 0; i < gradients.size(); ++i)
      delivery.gradient(gradients[i].parameter, std::move(made[forward.batch_statistics.size() + i]));
    return delivery.finish();
  }
};

MicroBatchGraphs::MicroBatchGraphs(std::function<void(const std::string&)> notice) : notice_(std::move(notice)) {}
MicroBatchGraphs::~MicroBatchGraphs() = default;
void MicroBatchGraphs::clear() { kept_.clear(); }

MicroBatchResult MicroBatchGraphs::micro_batch_gradient(Network& network, const Inputs& input, const Targets& target,
                                                        const Task& task, const Rng& rng, const Recompute& recompute,
                                                        const MicroBatchProgress& progress, ShardGroup& group) {
  const MicroBatchWork work{network, input, target, task, rng, recompute, &group};
  const auto as_called = [&] {
    return elinvar::micro_batch_gradient(network, input, target, task, rng, recompute, progress, group);
  };
  const std::vector<Parameter>& parameters = network.parameters.list;
  const Device device = parameters.empty() ? Device{} : parameters[0].var.value().device();
  const bool alone = &group == &local_shards();
  if (device == Device{} || trace::recorder != nullptr || !alone || recompute.inputs) return as_called();

  const Signature signature(work);
  const auto known = std::ranges::find_if(kept_, [&](const Recorded& r) { return r.signature == signature; });
  if (known == kept_.end()) {
    // Records of the network with parameters at other addresses are useless now.
    std::erase_if(kept_, [&](const Recorded& r) {
      return r.signature.network == &network && r.signature.parameters != signature.parameters;
    });
    if (kept_.size() == kMost) kept_.pop_back();
    kept_.push_front(Recorded{.signature = signature});
    return as_called();
  }
  kept_.splice(kept_.begin(), kept_, known);
  Recorded& recorded = kept_.front();
  if (recorded.refused) return as_called();
  if (!recorded.graph) {
    try {
      recorded.record(work, device);
    } catch (const Failure& failure) {
      recorded.refused = true;
      if (notice_ && said_.insert(failure.what()).second)
        notice_(fmt::format("leaves are computed without a graph: {}", failure.what()));
      return as_called();
    }
  }
  return recorded.replay(work, progress);
}

}  // namespace elinvar
