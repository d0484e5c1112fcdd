#pragma once
// The calls of NCCL that groups of GPUs are made of (comm/gpu_group.h), as thin as they are there. For the device
// "cuda" they are those of the library libnccl.so.2, which is looked for when it is first needed, so that a program
// runs where there is none; for the device "emulated" those of tests/emulation/nccl.cpp.
//
// Every call returns at once; what it begins goes on by itself, and state() tells how far it is. A communicator is for
// one thread at a time, but for abort().
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/stream.h"

namespace elinvar {

// Names a communicator that is to be: made by one of its members, told to the others.
struct NcclId {
  std::array<unsigned char, 128> bytes{};
  std::string hex() const;
  static NcclId parse(const std::string& hex);  // throws UsageError
  bool operator==(const NcclId&) const = default;
};

// float32 elements in device memory, for or from the member `peer`.
struct GpuPiece {
  void* elements;
  int64_t count;
  int peer;
};

class NcclCommunicator {
 public:
  enum class State { pending, done, failed };

  virtual ~NcclCommunicator() = default;  // aborts, unless finish() is done
  // How far that is which was begun last: forming, a transfer, finish(). A transfer is `done` once it is queued on the
  // stream that the thread which began it has for the device. `why` is set where it failed.
  virtual State state(std::string& why) = 0;
  // As one group of sends and receives: each send meets the receive of as many elements at its peer; between two
  // members they meet in their order. What was begun before must be done.
  virtual void transfer(std::span<const GpuPiece> sends, std::span<const GpuPiece> receives) = 0;
  // Whether the device, too, is done with the last transfer, which state() said is done; others need not be. Until then
  // state() may still say that it failed. Throws Failure if the device failed.
  virtual bool carried() = 0;
  // Lets what others still await from here leave; done means that it may be destroyed without harm to them.
  virtual void finish() = 0;
  // Begins a communicator of these members without those that are `gone`, of which this one is none: all who stay call
  // it with the same ones, while nothing is under way. This one must live until the new one is done or has failed, and
  // is used for nothing else; afterwards it is as it was, or has failed as well. Throws Failure.
  virtual std::unique_ptr<NcclCommunicator> shrink(std::span<const int> gone) = 0;
  // From any thread, even while another one waits for the device, which may be stuck in a transfer: frees it. From then
  // on the communicator has failed, and no memory that was given to it is touched any more. May block for a while.
  virtual void abort() = 0;
};

class Nccl {
 public:
  virtual ~Nccl() = default;
  virtual Device device() const = 0;
  virtual std::string version() const = 0;  // "NCCL 2.28.9"
  // The GPU, as others tell it from theirs: a communicator has no GPU twice.
  virtual std::string place() const = 0;
  virtual bool shrinks() const = 0;  // whether its communicators have shrink()
  virtual NcclId make_id() = 0;      // may take a second; throws Failure
  virtual std::unique_ptr<NcclCommunicator> begin(const NcclId& id, int members, int me) = 0;  // throws Failure
};

// For this device, or why there is none.
struct FoundNccl {
  std::shared_ptr<Nccl> nccl = nullptr;
  std::string why_not = {};
};
FoundNccl find_nccl(Device device);

// Of the two kinds of devices, where they are built; throws Failure.
std::shared_ptr<Nccl> cuda_nccl(int index);
std::shared_ptr<Nccl> emulated_nccl();

}  // namespace elinvar
