#include "comm/gpu_group.h"

#include <algorithm>
#include <thread>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{1};  // interval at which a state is polled

Clock::time_point in(std::chrono::duration<double> time) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

void wait_for(NcclCommunicator& communicator, int members, std::chrono::duration<double> patience,
              const std::stop_token& stop, const char* hint) {
  const Clock::time_point deadline = in(patience);
  std::string why;
  NcclCommunicator::State state;
  while ((state = communicator.state(why)) == NcclCommunicator::State::pending) {
    if (stop.stop_requested()) fail("[group] {} GPUs: not needed any more", members);
    if (Clock::now() > deadline)
      fail("[group] {} GPUs have not found each other within {:.3g} s; {}", members, patience.count(), hint);
    std::this_thread::sleep_for(kLook);
  }
  if (state == NcclCommunicator::State::failed) fail("[group] {} GPUs cannot be connected: {}; {}", members, why, hint);
}

}  // namespace

std::shared_ptr<GpuGroup> GpuGroup::form(Nccl& nccl, const NcclId& id, int members, int me,
                                         std::chrono::duration<double> patience, const std::stop_token& stop) {
  check(members >= 2 && me >= 0 && me < members, "[group] a member of at least two expected, got {} of {}", me,
        members);
  constexpr const char* kHint =
      "NCCL_SOCKET_IFNAME names the network to use, NCCL_DEBUG=INFO makes NCCL say more, "
      "run.data_plane = \"host\" does without it";
  std::unique_ptr<NcclCommunicator> communicator = nccl.begin(id, members, me);
  wait_for(*communicator, members, patience, stop, kHint);
  return of(std::move(communicator), members, me, nccl.device());
}

std::shared_ptr<GpuGroup> GpuGroup::of(std::unique_ptr<NcclCommunicator> formed, int members, int me, Device device) {
  return std::shared_ptr<GpuGroup>(new GpuGroup(std::move(formed), members, me, device));
}

std::shared_ptr<GpuGroup> GpuGroup::shrink(std::span<const int> gone, std::chrono::duration<double> patience,
                                           const std::stop_token& stop) {
  const int members = members_ - static_cast<int>(gone.size());
  const auto before = std::count_if(gone.begin(), gone.end(), [this](int m) { return m < me_; });
  check(members >= 2 && std::find(gone.begin(), gone.end(), me_) == gone.end(),
        "[group] at least two members that stay expected, got {} of {}", members, members_);
  if (!whole()) fail("[group] something is under way in the group that is to be shrunk");
  whole_ = false;
  std::unique_ptr<NcclCommunicator> communicator = communicator_->shrink(gone);
  wait_for(*communicator, members, patience, stop, "another group is formed instead");
  whole_ = true;
  return of(std::move(communicator), members, me_ - static_cast<int>(before), device_);
}

void GpuGroup::transfer(std::span<const GroupTensor> sends, std::span<const GroupTensor> receives) {
  const auto pieces_of = [this](std::span<const GroupTensor> tensors) {
    std::vector<GpuPiece> pieces;
    for (const auto& [tensor, peer] : tensors) {
      check(tensor.device() == device_ && tensor.contiguous(), "[group] a contiguous tensor on {} expected",
            to_string(device_));
      Tensor& held = holds_.emplace_back(tensor.numel() > 0 ? tensor : Tensor::empty({1}, DType::u8, device_));
      pieces.push_back({held.raw(), static_cast<size_t>(held.bytes()), peer});
    }
    return pieces;
  };
  const std::vector<GpuPiece> out = pieces_of(sends), in = pieces_of(receives);
  whole_ = false;
  communicator_->transfer(out, in);
}

GpuGroup::State GpuGroup::poll(std::string& why) {
  const State state = communicator_->state(why);
  if (state == State::done) holds_.clear();
  return state;
}

bool GpuGroup::carried() {
  if (!communicator_->carried()) return false;
  whole_ = true;
  return true;
}

GpuGroup::State GpuGroup::complete(std::string& why) {
  try {
    const State state = poll(why);
    return state == State::done && !carried() ? State::pending : state;
  } catch (const std::exception& failure) {
    why = failure.what();
    return State::failed;
  }
}

void GpuGroup::retire(std::chrono::duration<double> patience) {
  if (!whole()) return;
  const Clock::time_point deadline = in(patience);
  communicator_->finish();
  std::string why;
  while (communicator_->state(why) == State::pending && Clock::now() < deadline) std::this_thread::sleep_for(kLook);
}

}  // namespace elinvar
