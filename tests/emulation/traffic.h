#pragma once
// What goes from emulated GPUs to their hosts, and how much memory they have: without end, or the bytes that
// ELINVAR_EMULATED_MEMORY in the environment says.
#include <atomic>
#include <cstdint>
#include <memory>

namespace elinvar::emulation {

inline std::atomic<int64_t> bytes_to_host{0};  // so far
inline std::atomic<int64_t> in_use{0}, peak_in_use{0};

// The block, counted as long as it lives; throws DeviceFull.
std::shared_ptr<void> counted(std::shared_ptr<void> block, size_t bytes);

}  // namespace elinvar::emulation
