#pragma once
// Transfers activations and their gradients between pipeline stages through a group of GPUs (PROTOCOL.md, "Groups of
// GPUs"). All members of a model replica know the order of their transfers
// (elastic/protocol/stage_exchange.h); a message announces each. Used by the loop alone.
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/gpu_group.h"
#include "elastic/protocol/stage_exchange.h"
#include "elastic/session/session.h"

namespace elinvar {

class StageTransfers {
 public:
  // The passes of a step begin, which are those of these virtual ranks. Requires the session's lock.
  StageTransfers(Session::Impl& session, std::shared_ptr<GpuGroup> group, const std::vector<int>& vranks);

  // Both return once the members that take part have made the transfer, and all that come before it here; they throw
  // Session::StepOver. A value without a tensor is that of a virtual rank without samples: it is announced alone.
  void give(const PipelinePass& pass, const Session::PassValue& result);
  // Returns the input of a pass, on the device. Reports the sender if its shape and type do not fit.
  Session::PassValue take(const PipelinePass& pass, const StageExchange::Fits& fits);
  // Returns how long both have waited for other members, and begins to count anew.
  std::chrono::duration<double> take_waited() { return std::exchange(waited_, {}); }

 private:
  using Key = std::tuple<int, int, bool>;  // the fields of the pass that gives the value
  static Key key(const PipelinePass& pass) { return {pass.vrank, pass.run, pass.backward}; }
  void announce(const PipelinePass& pass, const Session::PassValue& result);
  void make_up_to(const Key& last);
  [[noreturn]] void refuse(const StageExchange::Transfer& transfer);
  Session::PassValue awaited(std::unique_lock<std::mutex>& lock, const PipelinePass& given);

  Session::Impl& session_;
  std::shared_ptr<GpuGroup> group_;
  std::vector<StageExchange::Transfer> transfers_;
  std::map<Key, size_t> places_;  // in that order
  size_t made_ = 0;
  std::map<Key, Tensor> given_;                // by this member, not yet transferred
  std::map<Key, Session::PassValue> arrived_;  // that no pass has taken yet
  std::chrono::duration<double> waited_{};
};

}  // namespace elinvar
