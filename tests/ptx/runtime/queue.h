#pragma once
// CUDA's streams on the interpreter. Work runs when it is given to a stream, so every order that a stream or an event
// requires holds; work of a stream that records a graph is kept instead.
#include <cuda_runtime.h>

#include <functional>
#include <vector>

namespace elinvar::ptx {

using Work = std::function<void()>;

struct Queue {
  bool recording = false;
  std::vector<Work> recorded;
};

inline Queue& queue_of(cudaStream_t stream) { return *reinterpret_cast<Queue*>(stream); }

// Runs the work, or records it.
inline void perform(cudaStream_t stream, Work work) {
  if (stream != nullptr && queue_of(stream).recording) queue_of(stream).recorded.push_back(std::move(work));
  else work();
}

// Notes the error for cudaGetLastError(), and returns it.
cudaError_t noted(cudaError_t error);

// Prints what is wrong and aborts: no exception may pass through CUDA's interface.
[[noreturn]] void die(const char* what);

}  // namespace elinvar::ptx
