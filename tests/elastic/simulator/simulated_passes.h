#pragma once
// What a simulated worker knows of the rank gradients that it computes: those that it computes together with others
// (tensor and pipeline parallelism), those that it puts tensor by tensor, and the parameters that a pass uses (ZeRO-3).
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "comm/gpu_group.h"
#include "elastic/protocol/stage_exchange.h"
#include "elastic/protocol/step_gradients.h"
#include "elastic/step/model_replicas.h"
#include "elastic/step/pipeline.h"

namespace elinvar {

// The transfers between the stages of a pipeline through a group of GPUs (elastic/session/stage_transfers.h).
struct SimulatedTransfers {
  using Key = std::tuple<int, int, bool>;  // the fields of the pass that gives the value
  static Key key(const PipelinePass& pass) { return {pass.vrank, pass.run, pass.backward}; }

  std::shared_ptr<GpuGroup> group = {};
  std::vector<StageExchange::Transfer> all = {};
  size_t made = 0, until = 0;                             // those to make before the worker goes on
  bool under_way = false;                                 // the next one
  std::map<Key, Tensor> given = {};                       // by this worker, not yet transferred
  std::optional<messages::BoundaryValue> announced = {};  // the message of the transfer under way
  Tensor arriving = {};                                   // the tensor that it fills
  std::map<Key, messages::BoundaryValue> arrived = {};    // that no pass has taken yet
};

// The rank gradients of a step that a worker computes with others.
struct RankGradientsTogether {
  struct Rank {
    StepGradients::Begun begun = {};
    bool samples = false;    // what follows from its samples is in every state that members may have
    int64_t exchanges = 0;   // of values so far
    uint64_t forwarded = 0;  // what the last forward pass has given
    bool computed = false, opens = false, passes = false;
    bool misled = false;  // by the wrong values of a damaged worker
    RankGradient gradient = {};
    size_t left = 0;  // gradients that were not put yet
  };
  struct Undigested {
    int vrank = 0;
    bool named = false, compared = false;
    RankFacts facts = {};
    std::vector<Digest> tensors = {};  // of all, in order; none without samples
  };
  int64_t step = 0;
  bool last = false;
  ScalingState scaling_state = {};
  ReplicaPlace place = {};
  std::map<int, Rank> ranks = {};  // by virtual rank
  // With several stages: all passes, and then the virtual ranks for which it attaches something to their facts.
  std::vector<PipelinePass> passes = {};
  std::vector<int> attached = {};
  size_t done = 0;  // of both
  // The pass under way, or the whole rank gradient.
  int vrank = -1;
  PipelinePass pass = {};
  bool ends = true, attaches = false;  // it ends the rank gradient here; it only attaches something
  int64_t early = 0, all = 0;          // the exchanges before its tensors, and before its end
  uint64_t value = 0;                  // its input
  enum class Awaits { nothing, input, values, transfer, digests, output } awaits = Awaits::nothing;
  // With a transfer in a group of GPUs: the group, and the values of shards that it brings, by member.
  std::shared_ptr<GpuGroup> group = {};
  std::map<int, std::vector<Tensor>> arriving = {};
  std::optional<SimulatedTransfers> transfers = {};  // if values between stages go through a group
  std::vector<Undigested> undigested = {};
};

// A rank gradient that a worker computes alone and puts tensor by tensor.
struct PuttingGradient {
  int64_t step = 0;
  int vrank = 0;
  StepGradients::Begun begun = {};
  RankGradient gradient = {};
  bool passes = false;  // each tensor leaves at once, and none is kept (StepGradients::by_rank)
};

// With ZeRO-3: the segments of a pass, and the parameters of those that it uses.
struct SegmentResidence {
  struct Holding {
    int users = 0;  // the segment in use, and the next one
    bool there = false;
  };
  std::map<int, Holding> holdings = {};  // by bucket
  std::optional<Interval> shards = {};   // the virtual shards that this worker computes; null: all
  std::vector<int> order = {};           // segments
  size_t entered = 0, forward = 0;       // the number of entered segments, and of those of a forward pass
  bool stays = false;                    // the last one of the order is the next one to be entered
  std::optional<int> in_use = {}, next = {};
  bool awaits = false;             // the parameters of a segment that is being entered
  std::optional<int> row_of = {};  // the bucket of the table whose row was asked for and has not come
  size_t due = 0;
  std::function<void()> then = {};  // called once `due` segments have been entered

  void begin(std::vector<int> segments);
  size_t entered_for(int segment) const;
};

}  // namespace elinvar
