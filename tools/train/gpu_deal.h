#pragma once
// Which GPU each of the workers that `train run` starts here computes on. No bit depends on it.
#include <sys/types.h>

#include <map>
#include <set>
#include <string>

namespace elinvar {

int gpus_here();  // 0 in a build without CUDA

class GpuDeal {
 public:
  // Of --device: "cuda" and "auto" deal the machine's `gpus` to the workers, any other word is for all of them.
  // UsageError where "cuda" has fewer than the `workers` that are to start.
  GpuDeal(std::string device, int workers, int gpus);

  // For the next worker: the GPU that fewest of those that are `alive` compute on, the first of them.
  std::string next(const std::set<pid_t>& alive);
  void given_to(pid_t worker);  // what next() said

 private:
  std::string device_;
  int gpus_;  // to be dealt
  int next_ = 0;
  std::map<pid_t, int> given_;
};

}  // namespace elinvar
