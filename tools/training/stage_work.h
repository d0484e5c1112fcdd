#pragma once
// The rank gradients that a worker has under way as a stage of a pipeline: it computes the passes through its segments,
// in the order in which the session asks for them.
#include <map>
#include <optional>
#include <vector>

#include "elastic/session/session.h"
#include "nn/stage.h"
#include "tools/training/training.h"

namespace elinvar {

class StageWork {
 public:
  // For the rank gradients of one step, whose batch is `at`.
  StageWork(Training& training, const Cursor& at, int64_t step) : training_(training), at_(at), step_(step) {}

  // Computes the pass of the task: receives its input, and sends what it gives. Throws Session::StepOver.
  void compute(Session::Task& task);
  // After the last pass: the tensors are with the task. Returns the facts of the rank gradient as far as this worker
  // knows them: of the loss only if it has computed it.
  RankFacts finish(Session::Task& task);

 private:
  struct Run {
    SegmentRange segments;
    SegmentPasses passes;
  };
  struct RankWork {
    Batch batch;
    Targets targets;
    std::map<int, Run> runs = {};                        // by the first segment, between their two passes
    std::map<int, std::vector<Tensor>> statistics = {};  // .. their batch statistics
    std::vector<Tensor> gradients = {};
    std::vector<int> readers = {};  // of each parameter, the runs that have not added their part of its gradient
    std::optional<Download> loss = {}, top1 = {};
  };
  const SegmentedNetwork& network() const;
  Rng rng_of(int vrank) const;
  Shape value_shape(int segment, const Batch& batch) const;
  RankWork& work_of(Session::Task& task);
  void forward(Session::Task& task, RankWork& work);
  void backward(Session::Task& task, RankWork& work);
  std::vector<Tensor> batch_statistics(const RankWork& work) const;
  void hand_over(Session::Task& task, RankWork& work, size_t parameter);
  // Returns the parameters that segments read, ascending.
  std::vector<size_t> read_by(const SegmentRange& segments) const;

  Training& training_;
  Cursor at_;
  int64_t step_;
  std::map<int, RankWork> under_way_;   // by virtual rank
  std::optional<Residence> residence_;  // with ZeRO-3
};

}  // namespace elinvar
