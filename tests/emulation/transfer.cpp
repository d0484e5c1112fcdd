// Copies in parallel with the emulated device, as late as a GPU may make them: code that does not wait, or writes to
// data in transit, gets wrong results or ends the process.
#include "tensor/transfer.h"

#include <cstring>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/base/check.h"
#include "tests/emulation/graph.h"
#include "tests/emulation/traffic.h"

namespace elinvar {
namespace {

class LateCopy final : public CopyUnderWay {
 public:
  LateCopy(void* to, const void* from, size_t bytes)
      : to_(to), from_(from), begun_with_(static_cast<const char*>(from), static_cast<const char*>(from) + bytes) {
    if (bytes > 0) std::memset(to, 0xff, bytes);
  }
  bool done() override {
    if (!made_ && asked_++ > 0) make();
    return made_;
  }
  void wait() override { make(); }
  void before_the_rest() override { make(); }

 private:
  void make() {
    if (made_ || begun_with_.empty()) return void(made_ = true);
    invariant(std::memcmp(from_, begun_with_.data(), begun_with_.size()) == 0,
              "nobody writes to what is on its way between host and device");
    std::memcpy(to_, from_, begun_with_.size());
    made_ = true;
  }

  void* to_;
  const void* from_;
  std::vector<char> begun_with_;
  int asked_ = 0;
  bool made_ = false;
};

}  // namespace

template <>
std::shared_ptr<void> allocate_page_locked(EmulatedStream&, size_t bytes) {
  std::shared_ptr<void> block = HostAllocator::instance().allocate(bytes);
  if (bytes > 0) std::memset(block.get(), 0xff, bytes);
  return block;
}

template <>
std::unique_ptr<CopyUnderWay> begin_upload(EmulatedStream& stream, void* device, const void* host, size_t bytes) {
  not_while_recording(stream, "a copy from the host");
  return std::make_unique<LateCopy>(device, host, bytes);
}

template <>
std::unique_ptr<CopyUnderWay> begin_download(EmulatedStream& stream, void* host, const void* device, size_t bytes,
                                             const Mark& since) {
  not_while_recording(stream, "a copy to the host");
  if (since) emulation::check_unchanged(*static_cast<const emulation::MarkedPlace*>(since.get()), device, bytes);
  emulation::bytes_to_host += static_cast<int64_t>(bytes);
  return std::make_unique<LateCopy>(host, device, bytes);
}

}  // namespace elinvar
