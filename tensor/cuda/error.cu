#include "tensor/cuda/error.h"

#include <array>
#include <cstring>
#include <string>

#include "tensor/base/failure.h"

namespace elinvar {
namespace {

// The kernels that this thread started last.
class Started {
 public:
  void add(const char* name) {
    std::strncpy(names_[next_ % kKept].data(), name, names_[0].size() - 1);
    ++next_;
  }
  std::string text() const {
    std::string names;
    for (size_t back = 1; back <= kKept && back <= next_; ++back)
      names += std::string(back > 1 ? ", " : "") + names_[(next_ - back) % kKept].data();
    return names;
  }

 private:
  static constexpr size_t kKept = 4;
  std::array<std::array<char, 48>, kKept> names_{};
  size_t next_ = 0;
};
thread_local Started started;

}  // namespace

void require(cudaError_t answer, const char* doing) {
  if (answer == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // clears the error, so that later calls do not report it again
  std::string text = std::string("[cuda] ") + doing + ": " + cudaGetErrorString(answer);
  if (const std::string names = started.text(); !names.empty())
    text += "; the kernels started last, the newest first: " + names +
            " (with CUDA_LAUNCH_BLOCKING=1 in the environment the one at fault is named; kernels of a graph are with "
            "run.cuda_graphs = false)";
  throw Failure(text);
}

void check_launch(const char* name, int error) {
  started.add(name);
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Failure(std::string("[cuda] kernel ") + name + ": " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

}  // namespace elinvar
