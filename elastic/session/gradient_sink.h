#pragma once
// Takes the gradient of one virtual rank while its passes compute it: batch statistics after the forward pass, then
// gradients one by one, from a CPU or a GPU. What computes a gradient needs to know nothing else of its whereabouts.
//
//   sink.reads(input);
//   const bool early = sink.begin();
//   sink.forward(count, statistics, since);      // if early
//   sink.gradient(parameter, gradient, since);   // if early; of each parameter, in any order
//   sink.end(gradients, statistics);             // those that were not handed over before
//
// The sink itself keeps the tensors, for take(). The sink of a session (Session::Task) passes gradients on to other
// workers while the backward pass runs, if others wait for them.
#include <deque>
#include <utility>
#include <vector>

#include "elastic/step/step.h"
#include "tensor/transfer.h"

namespace elinvar {

// Tensors that a GPU computes are there once its work has reached `since`, and those with a mark until the next
// gradient alone; tensors on the CPU are there, and stay.
class GradientReceiver {
 public:
  virtual ~GradientReceiver() = default;
  virtual void open(int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) = 0;  // `count` targets
  virtual void put(size_t parameter, Tensor gradient, const Mark& since) = 0;
};

class GradientSink {
 public:
  // Where tensors are kept: on the CPU, or where they are computed.
  enum class Place { cpu, device };
  explicit GradientSink(Place place = Place::cpu) : plan_{.place = place} {}
  virtual ~GradientSink() = default;
  GradientSink(const GradientSink&) = delete;
  GradientSink& operator=(const GradientSink&) = delete;

  // What the gradient is going to be computed from. A fault that is injected replaces it.
  virtual void reads(Tensor& /*input*/) {}
  // Before the passes, and once more if they are repeated: what came before is dropped. Whether tensors are wanted as
  // they become ready; else all of them at the end.
  bool begin();
  void forward(int64_t count, const std::vector<Tensor>& batch_statistics, const Mark& since = {});
  void gradient(size_t parameter, Tensor gradient, const Mark& since = {});
  // Returns when the tensors are where they are kept.
  void end(std::vector<Tensor> gradients = {}, std::vector<Tensor> batch_statistics = {});
  // The device has no room. True: now it has more, and the passes are to be repeated.
  virtual bool make_room() { return false; }

  // What was kept, with these facts.
  RankGradient take(RankFacts facts);

 protected:
  struct Plan {
    Place place = Place::cpu;
    GradientReceiver* receiver = nullptr;  // gets the tensors in place of this; may be null
  };
  virtual Plan plan() { return plan_; }  // of the passes that begin
  const Plan& planned() const { return plan_; }

 private:
  void open();
  void pass_on();

  Plan plan_;
  std::vector<Tensor> gradients_, batch_statistics_;
  // On their way to the CPU. They are passed on in the order in which they became ready: those of the CPU at once,
  // those of a GPU, whose backward pass runs on meanwhile, as they arrive.
  int64_t count_ = 0;
  bool open_ = false;  // the batch statistics have arrived
  std::vector<Download> arriving_statistics_;
  std::deque<std::pair<size_t, Download>> arriving_;
};

}  // namespace elinvar
