#pragma once
// Counts the bytes sent from emulated GPUs to their hosts, and limits their memory to the bytes in the environment
// variable ELINVAR_EMULATED_MEMORY, if it is set.
#include <atomic>
#include <cstdint>
#include <memory>

namespace elinvar::emulation {

inline std::atomic<int64_t> bytes_to_host{0};  // since the process began
inline std::atomic<int64_t> in_use{0}, peak_in_use{0};

// Returns the block, counted while it lives; throws DeviceFull.
std::shared_ptr<void> counted(std::shared_ptr<void> block, size_t bytes);

}  // namespace elinvar::emulation
