#pragma once
// A group of GPUs that send to each other without their hosts: one NCCL communicator (comm/nccl.h). It exists once all
// members have formed it. A member that dies or hangs does not hurt the others: a transfer fails, or stays pending
// until whoever waits gives up, and aborting the group, or destroying it, frees the device from it.
#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "comm/nccl.h"
#include "tensor/tensor.h"

namespace elinvar {

class GpuGroup {
 public:
  using State = NcclCommunicator::State;

  // Waits until all `members` are in it, each of which does this with its own index `me`; at most `patience`. Failure
  // says why there is none, and what to look at; so it does if `stop` is asked for.
  static std::shared_ptr<GpuGroup> form(Nccl& nccl, const NcclId& id, int members, int me,
                                        std::chrono::duration<double> patience, const std::stop_token& stop = {});

  // Of a communicator that has formed, for whoever forms it in another way.
  static std::shared_ptr<GpuGroup> of(std::unique_ptr<NcclCommunicator> formed, int members, int me, Device device);

  // The same members without those that are `gone` (indices), by those who stay alone; the others keep their order. The
  // group must be whole, and is not used meanwhile. If it fails, this group is whole no more.
  std::shared_ptr<GpuGroup> shrink(std::span<const int> gone, std::chrono::duration<double> patience,
                                   const std::stop_token& stop = {});

  int members() const { return members_; }
  int me() const { return me_; }
  Device device() const { return device_; }

  // Begins to send and receive; one transfer at a time. `holds` are the tensors in whose memory the pieces lie: they
  // are kept until the device is done with them, or the group is gone.
  void transfer(std::span<const GpuPiece> sends, std::span<const GpuPiece> receives, std::vector<Tensor> holds);
  // Of the transfer: `done` once what is called from now on, on the stream of the thread that began it, finds it done.
  // It may fail even then.
  State poll(std::string& why) { return communicator_->state(why); }
  // Of a transfer that is done: whether it can fail no more, so that the memory of transfers is free. Throws Failure.
  bool carried();
  // Whether nothing is under way that only an abort would end. From any thread.
  bool whole() const { return whole_; }
  // From any thread, even while another waits for the device: ends what is under way.
  void abort() { communicator_->abort(); }

  // Where a whole group is not needed any more: waits until nobody misses anything of it, at most `patience`.
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
