#include "tools/bench/memory.h"

#include <fstream>
#include <string>

#include "tensor/allocator.h"

namespace elinvar::bench {
namespace {

int64_t peak_rss_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
  return 0;
}

}  // namespace

MemoryWatch::MemoryWatch() {
  HostAllocator::instance().release_cached();
  HostAllocator::instance().reset_peak();
  std::ofstream clear("/proc/self/clear_refs");
  clear << 5 << std::flush;  // resets VmHWM to the current resident set
  counts_rss_ = clear.good();
}

void MemoryWatch::steady() { system_calls_ = HostAllocator::instance().stats().system_calls; }

nlohmann::ordered_json MemoryWatch::figures() const {
  const AllocatorStats stats = HostAllocator::instance().stats();
  return {{"in_use_mb", stats.peak_in_use >> 20},
          {"rss_mb", counts_rss_ ? peak_rss_kb() >> 10 : 0},
          {"fresh", stats.system_calls - system_calls_}};
}

}  // namespace elinvar::bench
