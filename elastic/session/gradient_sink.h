#pragma once
// Takes the gradient of one virtual rank while its passes compute it: batch statistics after the forward pass, then
// gradients one by one, from a CPU or a GPU. Code that computes a gradient need not know where its tensors go.
//
//   sink.reads(input);
//   const bool early = sink.begin();
//   sink.forward(count, statistics, since);      // if early; otherwise may be called, unless tensors are of a graph
//   sink.gradient(parameter, gradient, since);   // the same; for each parameter, in any order
//   sink.end(gradients, statistics);             // those that were not passed before
//
// The sink itself keeps the tensors for take(). The sink of a session (Session::Task) passes gradients on to other
// workers while the backward pass runs, if others wait for them.
#include <deque>
#include <utility>
#include <vector>

#include "elastic/step/step.h"
#include "tensor/shard_group.h"
#include "tensor/transfer.h"

namespace elinvar {

// Receives tensors as they are computed. Tensors on a GPU are ready once its work has reached `since`; those with a
// mark are valid only until the next gradient. Tensors on the CPU are ready and stay valid.
class GradientReceiver {
 public:
  virtual ~GradientReceiver() = default;
  // `count`: targets that count.
  virtual void open(int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) = 0;
  virtual void put(size_t parameter, Tensor gradient, const Mark& since) = 0;
};

class GradientSink {
 public:
  // The place where tensors are kept: the CPU, or the device that computes them.
  enum class Place { cpu, device };
  explicit GradientSink(Place place = Place::cpu) : plan_{.place = place} {}
  virtual ~GradientSink() = default;
  GradientSink(const GradientSink&) = delete;
  GradientSink& operator=(const GradientSink&) = delete;

  // Receives the input from which the gradient is to be computed. Fault injection may replace it.
  virtual void reads(Tensor& /*input*/) {}
  // Returns the processes that compute the gradient together.
  virtual ShardGroup& shards() { return local_shards(); }
  // Called before the passes, and again if they are repeated, which drops all earlier tensors. Returns whether tensors
  // are wanted as they become ready; if not, all are passed at the end.
  bool begin();
  void forward(int64_t count, const std::vector<Tensor>& batch_statistics, const Mark& since = {});
  void gradient(size_t parameter, Tensor gradient, const Mark& since = {});
  // Returns when the tensors are at the place where they are kept.
  void end(std::vector<Tensor> gradients = {}, std::vector<Tensor> batch_statistics = {});
  // Called when the device has no memory left. Returns true if memory was freed and the passes must be repeated.
  virtual bool make_room() { return false; }

  // Returns the kept tensors with these facts.
  RankGradient take(RankFacts facts);

 protected:
  struct Plan {
    Place place = Place::cpu;
    GradientReceiver* receiver = nullptr;  // gets the tensors instead of this sink; may be null
  };
  virtual Plan plan() { return plan_; }  // the plan of the passes that begin
  const Plan& planned() const { return plan_; }

 private:
  void open();
  void pass_on();
  void keep(size_t parameter, Tensor gradient);

  Plan plan_;
  std::vector<Tensor> gradients_, batch_statistics_;
  // Tensors that are being copied to the CPU. They are passed on in the order in which they became ready: those of the
  // CPU at once, those of a GPU as they arrive, while its backward pass continues.
  int64_t count_ = 0;
  bool open_ = false;                          // the batch statistics have arrived
  std::vector<Download> arriving_statistics_;  // empty for those that are computed elsewhere
  std::deque<std::pair<size_t, Download>> arriving_;
};

}  // namespace elinvar
