// The emulated device: host memory, and kernels that have finished when a call returns.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tensor/allocator.h"
#include "tensor/base/check.h"
#include "tensor/device_cache.h"
#include "tensor/device_memory.h"
#include "tensor/gpu_stream.h"
#include "tensor/graph.h"
#include "tests/emulation/graph.h"
#include "tests/emulation/side_queue.h"
#include "tests/emulation/traffic.h"

namespace elinvar {

std::shared_ptr<void> emulation::counted(std::shared_ptr<void> block, size_t bytes) {
  static const int64_t room = [] {
    const char* const said = std::getenv("ELINVAR_EMULATED_MEMORY");
    return said == nullptr ? INT64_MAX : std::stoll(said);
  }();
  const auto size = static_cast<int64_t>(bytes);
  const int64_t now = in_use += size;
  peak_in_use = std::max<int64_t>(peak_in_use, now);
  std::shared_ptr<void> held(block.get(), [block, size](void*) { in_use -= size; });
  if (now > room) throw DeviceFull(out_of_memory("emulated", bytes, {}, 0, 0));
  return held;
}

// Memory of graphs is in segments, as on a GPU: later recordings reuse its places.
template <>
EmulatedStream::GpuStream(int index, bool recording) : index_(index), recording_(recording) {
  if (!recording) return;
  cache_ = std::make_shared<DeviceCache>(DeviceCache::Source{
      .take = emulation::take_segment, .give = [](void* segment) { std::free(segment); }, .keeps = true});
}
template <>
EmulatedStream::~GpuStream() {}

template <>
std::shared_ptr<void> EmulatedStream::allocate(size_t bytes) {
  if (recording_) {
    void* const block = cache_->allocate(bytes);
    if (block == nullptr) fail("{}", out_of_memory("emulated", bytes, cache_->stats(), 0, 0));
    return {block, [owner = cache_](void* p) { owner->free(p); }};
  }
  std::shared_ptr<void> block = HostAllocator::instance().allocate(bytes);
  if (bytes > 0) std::memset(block.get(), 0xff, bytes);  // NaN until it is written
  emulation::add_block(block.get(), bytes);
  std::shared_ptr<void> known(block.get(), [block](void* p) { emulation::remove_block(p); });
  return emulation::kept_for(*this, emulation::counted(std::move(known), bytes));
}
template <>
void EmulatedStream::give_back() {
  if (cache_) cache_->give_back();
}
template <>
void EmulatedStream::copy_in(void* device, const void* host, size_t bytes) {
  not_while_recording(*this, "a copy from the host");
  emulation::catch_up(*this);
  if (bytes > 0) std::memcpy(device, host, bytes);
}
template <>
void EmulatedStream::copy_out(void* host, const void* device, size_t bytes) {
  not_while_recording(*this, "a copy to the host");
  emulation::catch_up(*this);
  emulation::bytes_to_host += static_cast<int64_t>(bytes);
  if (bytes > 0) std::memcpy(host, device, bytes);
}
template <>
void EmulatedStream::synchronize() {
  not_while_recording(*this, "waiting for the device");
  emulation::catch_up(*this);
}

template <>
AllocatorStats gpu_memory(EmulatedStream& stream) {
  const AllocatorStats of_graphs = recording_stream<Emulated>(stream.index()).cache().stats();
  return {.in_use = emulation::in_use + of_graphs.in_use,
          .peak_in_use = emulation::peak_in_use + of_graphs.peak_in_use,
          .cached = of_graphs.cached};
}
template <>
void reset_gpu_peak(EmulatedStream& stream) {
  emulation::peak_in_use = emulation::in_use.load();
  recording_stream<Emulated>(stream.index()).cache().reset_peak();
}

template <>
int gpu_count<Emulated>() {
  return 1;
}

template <>
EmulatedStream*& recorded_on() {
  static thread_local EmulatedStream* stream = nullptr;
  return stream;
}

template <>
EmulatedStream& gpu_stream(int index) {
  check(index == 0, "[device] there is one emulated device, number 0, got {}", index);
  if (EmulatedStream* const recording = recorded_on<Emulated>()) return *recording;
  static EmulatedStream stream(0);
  return stream;
}

}  // namespace elinvar
