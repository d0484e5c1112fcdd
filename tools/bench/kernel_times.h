#pragma once
// The time of each kernel and copy that a GPU executes, as CUPTI reports it. CUPTI is a part of the CUDA toolkit; it is
// loaded when the first watch begins.
#include <cstdint>
#include <string>
#include <vector>

namespace elinvar::bench {

struct KernelTime {
  std::string
      name;  // "layer_norm<float>", without namespaces and arguments; copies and fills by memset: "copy", "fill"
  int64_t launches = 0;
  double seconds = 0;  // of all launches
};

// Watches all GPUs of the process while it exists; at most one at a time.
class KernelWatch {
 public:
  KernelWatch();  // throws Failure if there is no CUPTI, or if it cannot watch
  ~KernelWatch();
  KernelWatch(const KernelWatch&) = delete;
  KernelWatch& operator=(const KernelWatch&) = delete;

  // Returns the kernels that have ended since the last call, by name, the longest first. The caller has waited for
  // them.
  std::vector<KernelTime> take();
};

// Returns a demangled name of a kernel without namespaces, arguments and result.
std::string short_name(const std::string& kernel);

}  // namespace elinvar::bench
