#pragma once
// CUDA's handles on the interpreter, and the scheduler behind them (tests/emulation/scheduler.h).
#include <cuda_runtime.h>

#include <exception>

#include "tests/emulation/scheduler.h"

namespace elinvar::ptx {

using emulation::Scheduler;

// Prints what is wrong and aborts: no exception may pass through CUDA's interface.
[[noreturn]] void die(const char* what);

// Notes the error for cudaGetLastError(), and returns it.
cudaError_t noted(cudaError_t error);

// The device that this thread has chosen.
int chosen_device();

// The default stream, which waits for others, is not there, because the project does not use it.
inline Scheduler::Stream& stream_of(cudaStream_t stream) {
  if (stream == nullptr) die("work on the default stream");
  return *reinterpret_cast<Scheduler::Stream*>(stream);
}

// Calls f with the scheduler. What CUDA refuses while a stream is captured ends the process.
template <class F>
auto scheduled(F&& f) {
  try {
    return f(Scheduler::instance());
  } catch (const std::exception& e) {
    die(e.what());
  }
}

inline void perform(cudaStream_t stream, Scheduler::Work work) {
  scheduled([&](Scheduler& scheduler) { scheduler.queue(stream_of(stream), std::move(work)); });
}

}  // namespace elinvar::ptx
