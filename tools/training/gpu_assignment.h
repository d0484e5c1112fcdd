#pragma once
// Assigns a GPU to each worker that a coordinator starts on this machine. No bit depends on the assignment.
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace elinvar {

int gpus_here();  // 0 in a build without CUDA; starts the driver, which may take a second

class GpuAssignment {
 public:
  // `device` is the value of --device: "cuda" and "auto" assign the machine's GPUs to the workers; any other value
  // applies to all workers. Throws UsageError if "cuda" has fewer GPUs than the `workers` to start. `gpus` counts the
  // GPUs and is called only when the count matters.
  GpuAssignment(std::string device, int workers, std::function<int()> gpus);

  // Returns the device of the next worker: the first of the GPUs that the fewest `alive` workers use.
  std::string next(const std::set<pid_t>& alive);
  void given_to(pid_t worker);  // records the result of next() for a worker

 private:
  int gpus();  // the number of GPUs to assign

  std::string device_;
  std::function<int()> count_;
  std::optional<int> gpus_;
  int next_ = 0;
  std::map<pid_t, int> given_;
};

}  // namespace elinvar
