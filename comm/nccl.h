#pragma once
// A thin interface to the NCCL calls that groups of GPUs need (comm/gpu_group.h). For the device "cuda" it calls
// libnccl.so.2, which is loaded when it is first needed, so that programs run without it; for the device "emulated" it
// calls tests/emulation/nccl.cpp.
//
// Calls return at once, and state() tells how far their work is. Only one thread at a time may use a communicator,
// except for abort().
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/stream.h"

namespace elinvar {

// Names a communicator before it forms. One member makes it and sends it to the others.
struct NcclId {
  std::array<unsigned char, 128> bytes{};
  std::string hex() const;
  static NcclId parse(const std::string& hex);  // throws UsageError
  bool operator==(const NcclId&) const = default;
};

// Device memory to send to the member `peer`, or to receive from it.
struct GpuPiece {
  void* at;
  size_t bytes;
  int peer;
};

class NcclCommunicator {
 public:
  enum class State { pending, done, failed };

  virtual ~NcclCommunicator() = default;  // aborts, unless finish() is done
  // The state of what was begun last: forming, a transfer, or finish(). A transfer is `done` once it is queued on the
  // device's stream of the thread that began it. Sets `why` if it failed.
  virtual State state(std::string& why) = 0;
  // Begins one group of sends and receives. Each send needs a receive of the same number of bytes at its peer; those
  // between two members match in their order. The call before must be done.
  virtual void transfer(std::span<const GpuPiece> sends, std::span<const GpuPiece> receives) = 0;
  // Whether this device has finished the last transfer, for which state() must have returned `done`; other members may
  // still be at it. Until then state() may still report a failure. Throws Failure if the device failed.
  virtual bool carried() = 0;
  // Begins to send what other members still await. Once it is done, destroying this does not harm them.
  virtual void finish() = 0;
  // Begins a communicator of the same members without those in `gone`. All members that stay call it with the same list
  // while nothing is under way. This one must live, unused, until the new one is done or has failed; afterwards it is
  // as before, or has failed as well. Throws Failure.
  virtual std::unique_ptr<NcclCommunicator> shrink(std::span<const int> gone) = 0;
  // Frees the device, which may be stuck in a transfer. Afterwards the communicator has failed and touches no memory
  // that was given to it. Thread-safe, even while another thread waits for the device; may block for a while.
  virtual void abort() = 0;
};

class Nccl {
 public:
  virtual ~Nccl() = default;
  virtual Device device() const = 0;
  virtual std::string version() const = 0;  // "NCCL 2.28.9"
  // Identifies the GPU among those of all hosts, because a communicator must not have a GPU twice.
  virtual std::string place() const = 0;
  virtual bool shrinks() const = 0;  // whether its communicators have shrink()
  virtual NcclId make_id() = 0;      // may take a second; throws Failure
  virtual std::unique_ptr<NcclCommunicator> begin(const NcclId& id, int members, int me) = 0;  // throws Failure
};

// Holds NCCL for a device, or the reason why there is none.
struct FoundNccl {
  std::shared_ptr<Nccl> nccl = nullptr;
  std::string why_not = {};
};
FoundNccl find_nccl(Device device);

// NCCL for each kind of device. They throw Failure if the library is missing or the kind is not built.
std::shared_ptr<Nccl> cuda_nccl(int index);
std::shared_ptr<Nccl> emulated_nccl();

}  // namespace elinvar
