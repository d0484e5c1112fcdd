#pragma once
// A group of GPUs that exchange data without their hosts, by one NCCL communicator (comm/nccl.h). It exists once all
// members have formed it. If a member dies or hangs, a transfer fails or stays pending. Each other member decides when
// to give up, and frees its device by aborting or destroying the group.
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "comm/nccl.h"
#include "tensor/tensor.h"

namespace elinvar {

// A contiguous tensor on a group's device, to send to the member `peer`, or to receive from it.
struct GroupTensor {
  Tensor tensor;
  int peer;
};

class GpuGroup {
 public:
  using State = NcclCommunicator::State;

  // Forms a group of `members` processes, each of which calls this with its own index `me`. Waits at most `patience`.
  // Throws Failure, which says why there is no group and what to check, also if `stop` is requested.
  static std::shared_ptr<GpuGroup> form(Nccl& nccl, const NcclId& id, int members, int me,
                                        std::chrono::duration<double> patience, const std::stop_token& stop = {});

  // Makes a group of a communicator that is already formed.
  static std::shared_ptr<GpuGroup> of(std::unique_ptr<NcclCommunicator> formed, int members, int me, Device device);

  // Forms a group of the members whose indices are not in `gone`. They keep their order, and all of them call this.
  // This group must be whole and unused during the call; if the call fails, it is no longer whole.
  std::shared_ptr<GpuGroup> shrink(std::span<const int> gone, std::chrono::duration<double> patience,
                                   const std::stop_token& stop = {});

  int members() const { return members_; }
  int me() const { return me_; }
  Device device() const { return device_; }

  // Begins to send and receive tensors. Only one transfer may run at a time. Other members of the group need not take
  // part. Each tensor sent needs one of as many bytes that its peer receives; those between two members match in their
  // order. A tensor without elements is sent as one byte. So if two members send each other tensors, neither carries
  // its transfer before the other has begun its own; and if all transfers that are carried are of this kind, a group
  // that is whole at all members has the same transfers behind it at all of them. The group keeps the tensors until
  // the transfer is `done` or the group is destroyed; later work on the stream of the calling thread may reuse their
  // memory, so they must have been allocated for that stream (tensor/side_queue.h).
  void transfer(std::span<const GroupTensor> sends, std::span<const GroupTensor> receives);
  // Returns the state of the transfer. It is `done` once later work on the stream of the thread that began it will run
  // after it; the transfer may still fail then.
  State poll(std::string& why);
  // Returns whether a `done` transfer can no longer fail. Throws Failure if it failed.
  bool carried();
  // Like poll(), but `done` once the transfer is carried, and `failed` instead of throwing.
  State complete(std::string& why);
  // Returns false if a transfer is pending that only an abort can end. Thread-safe.
  bool whole() const { return whole_; }
  // Ends pending work. Thread-safe, even while another thread waits for the device.
  void abort() { communicator_->abort(); }

  // Call it when a whole group is no longer needed. Waits, at most `patience`, until no member awaits data from this
  // one.
  void retire(std::chrono::duration<double> patience);

 private:
  GpuGroup(std::unique_ptr<NcclCommunicator> communicator, int members, int me, Device device)
      : communicator_(std::move(communicator)), members_(members), me_(me), device_(device) {}

  std::vector<Tensor> holds_;  // outlives the communicator
  std::atomic<bool> whole_ = true;
  std::unique_ptr<NcclCommunicator> communicator_;
  int members_, me_;
  Device device_;
};

}  // namespace elinvar
