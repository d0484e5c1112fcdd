#pragma once
// With ZeRO-3, where the parameters come from while a pass uses them (nn/residence.h): from the slices that this worker
// has, or else from the members of the job that keep them. With any stage, the same for the averages of the parameters,
// which scores use.
#include <map>
#include <memory>
#include <vector>

#include "elastic/session/session.h"
#include "nn/residence.h"
#include "tools/training/sharded_state.h"

namespace elinvar {

class ParameterShards final : public ParameterSource {
 public:
  // Until there is a session, the worker must have all slices.
  ParameterShards(TrainingSetup& setup, const ShardedState& state, bool average)
      : setup_(setup), state_(state), average_(average) {}
  void use(Session& session) { session_ = &session; }

  // These throw Session::StepOver.
  void request(std::span<const size_t> parameters) override;
  void wait(std::span<const size_t> parameters) override;
  void cancel(std::span<const size_t> parameters) override;
  // Returns rows of a sparse table, ascending, as (rows, channels) on the CPU or the table's device.
  Tensor rows(size_t table, std::span<const int64_t> rows);

 private:
  // Buckets that were asked for together.
  struct Request {
    std::vector<int> buckets;
    std::map<int, std::vector<Blob>> arrived = {};
    int parameters = 0;  // that were not waited for
  };
  Tensor tensor(size_t parameter) const;
  Tensor slice(const Slice& slice) const { return average_ ? state_.average(slice) : state_.parameter(slice); }
  void receive(Request& request);
  void end(size_t parameter);

  TrainingSetup& setup_;
  const ShardedState& state_;
  bool average_;
  Session* session_ = nullptr;
  std::map<size_t, std::shared_ptr<Request>> requests_;  // by parameter
};

}  // namespace elinvar
