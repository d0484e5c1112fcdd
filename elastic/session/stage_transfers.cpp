#include "elastic/session/stage_transfers.h"

#include <utility>

#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

StageTransfers::StageTransfers(Session::Impl& session, std::shared_ptr<GpuGroup> group, const std::vector<int>& vranks)
    : session_(session), group_(std::move(group)), transfers_(session.member.stage_exchange().transfers(vranks)) {
  for (size_t i = 0; i < transfers_.size(); ++i) places_[key(transfers_[i].pass)] = i;
}

void StageTransfers::give(const PipelinePass& pass, const Session::PassValue& result) {
  const auto place = places_.find(key(pass));
  if (place == places_.end()) return;  // no pass needs it
  if (!transfers_[place->second].to.empty()) announce(pass, result);
  make_up_to(key(pass));
}

void StageTransfers::announce(const PipelinePass& pass, const Session::PassValue& result) {
  messages::BoundaryValue told{
      .vrank = pass.vrank, .run = pass.run, .backward = pass.backward, .shape = {0}, .random = result.random};
  if (result.value.defined()) {
    told.shape = result.value.shape();
    told.dtype = result.value.dtype();
    given_[key(pass)] = result.value.to_contiguous();
  }
  const Lock lock(session_.mutex);
  StageExchange& exchange = session_.member.stage_exchange();
  if (!exchange.going()) throw Session::StepOver();
  exchange.send(std::move(told));
  session_.flush();
}

Session::PassValue StageTransfers::take(const PipelinePass& pass, const StageExchange::Fits& fits) {
  const Key given{pass.vrank, pass.backward ? pass.run + 1 : pass.run - 1, pass.backward};
  make_up_to(given);
  Session::PassValue value = std::move(arrived_.extract(given).mapped());
  if (!fits(value.value.shape(), value.value.dtype())) refuse(transfers_[places_.at(given)]);
  return value;
}

// Reports the sender and waits for the fence that follows, as for a value in a message.
void StageTransfers::refuse(const StageExchange::Transfer& transfer) {
  Member& member = session_.member;
  Lock lock(session_.mutex);
  if (!member.stage_exchange().going()) throw Session::StepOver();
  const GenerationMember& sender = member.position().generation->members[static_cast<size_t>(transfer.from)];
  member.outbox().report(messages::Suspect{sender.peer, "sent a value of another shape or type than was expected"});
  session_.flush();
  session_.wait_within_work(lock, [&] { return member.outcome() || !member.stage_exchange().going(); });
  throw Session::StepOver();
}

// Waits for the device before each transfer: no work of the device follows a transfer that another member may never
// make, and a member that waits for others must not be taken to hang.
void StageTransfers::make_up_to(const Key& last) {
  const size_t end = places_.at(last) + 1;
  if (made_ >= end) return;
  on_gpu(group_->device(), [](auto& stream) { stream.synchronize(); });
  const Activity activity("waiting for a stage");
  const Clock::time_point began = Clock::now();
  const Tensor nothing = Tensor::empty({0}, DType::f32, group_->device());
  Lock lock(session_.mutex);
  const auto going = [this] { return !session_.member.outcome() && session_.member.stage_exchange().going(); };
  for (; made_ < end; ++made_) {
    if (!going()) throw Session::StepOver();
    const auto& [pass, to, from] = transfers_[made_];
    std::vector<GroupTensor> sends, receives;
    if (from >= 0) {
      Session::PassValue& value = arrived_[key(pass)] = awaited(lock, pass);
      if (value.value.numel() > 0) receives.push_back({value.value, from});
      if (value.value.numel() > 0) sends.push_back({nothing, from});
    } else if (auto given = given_.extract(key(pass))) {
      for (const int member : to) {
        sends.push_back({given.mapped(), member});
        receives.push_back({nothing, member});
      }
    }
    if (sends.empty()) continue;
    group_->transfer(sends, receives);
    if (!session_.wait_for_transfer(lock, *group_, going)) throw Session::StepOver();
  }
  waited_ += Clock::now() - began;
}

// Waits until the value is announced. Returns a tensor that is to receive it. An input is checked once a pass takes it.
Session::PassValue StageTransfers::awaited(Lock& lock, const PipelinePass& given) {
  Session::Impl& s = session_;
  const PipelinePass taker{given.vrank, given.backward ? given.run - 1 : given.run + 1, given.backward};
  StageExchange& exchange = s.member.stage_exchange();
  std::optional<messages::BoundaryValue> told;
  s.wait_within_work(lock, [&] {
    return s.member.outcome() || !exchange.going() ||
           (told = exchange.take(taker, [](const Shape&, DType) { return true; }));
  });
  if (!told) throw Session::StepOver();
  return {.value = Tensor::empty(told->shape, told->dtype, group_->device()),
          .random = static_cast<uint32_t>(told->random)};
}

}  // namespace elinvar
