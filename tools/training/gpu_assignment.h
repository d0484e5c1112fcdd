#pragma once
// Which GPU each of the workers that a coordinator starts here computes on. No bit depends on it.
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
  // Of --device: "cuda" and "auto" assign the machine's GPUs to the workers, any other word is for all of them.
  // UsageError where "cuda" has fewer than the `workers` that are to start. How many `gpus` there are is asked when it
  // matters.
  GpuAssignment(std::string device, int workers, std::function<int()> gpus);

  // For the next worker: the GPU that fewest of those that are `alive` compute on, the first of them.
  std::string next(const std::set<pid_t>& alive);
  void given_to(pid_t worker);  // what next() said

 private:
  int gpus();  // to be assigned

  std::string device_;
  std::function<int()> count_;
  std::optional<int> gpus_;
  int next_ = 0;
  std::map<pid_t, int> given_;
};

}  // namespace elinvar
