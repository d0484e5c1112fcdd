#include "tools/bench/memory.h"

#include <fstream>
#include <string>
#include <vector>

#include "tensor/allocator.h"
#include "tensor/device_cache.h"
#include "tensor/graph.h"

namespace elinvar::bench {
namespace {

int64_t peak_rss_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  return 0;
}

// The memory of ops and that of graphs; none if the device is no card.
std::vector<DeviceCache*> caches_of(Device device) {
#ifdef ELINVAR_CUDA
  if (device.kind == DeviceKind::cuda)
    return {&gpu_stream<Cuda>(device.index).cache(), &recording_stream<Cuda>(device.index).cache()};
#else
  static_cast<void>(device);
#endif
  return {};
}

}  // namespace

MemoryWatch::MemoryWatch(Device device) : device_(device) {
  for (DeviceCache* cache : caches_of(device)) {
    cache->give_back();
    cache->reset_peak();
  }
  HostAllocator::instance().release_cached();
  HostAllocator::instance().reset_peak();
  std::ofstream clear("/proc/self/clear_refs");
  clear << 5 << std::flush;  // resets VmHWM to the current resident set
  counts_rss_ = clear.good();
}

void MemoryWatch::steady() {
  system_calls_ = HostAllocator::instance().stats().system_calls;
  // The step before a graph is recorded takes memory that is given back then.
  if (const auto caches = caches_of(device_); !caches.empty()) caches[0]->reset_peak();
}

nlohmann::ordered_json MemoryWatch::figures() const {
  const AllocatorStats stats = HostAllocator::instance().stats();
  nlohmann::ordered_json figures{{"in_use_mb", stats.peak_in_use >> 20},
                                 {"rss_mb", counts_rss_ ? peak_rss_kb() >> 10 : 0},
                                 {"fresh", stats.system_calls - system_calls_}};
  int64_t on_gpu = 0;
  for (const DeviceCache* cache : caches_of(device_)) on_gpu += cache->stats().peak_in_use;
  if (on_gpu > 0) figures["gpu_mb"] = on_gpu >> 20;
  return figures;
}

}  // namespace elinvar::bench
