#include "tools/training/gpu_assignment.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/gpu_stream.h"

namespace elinvar {

int gpus_here() { return gpu_count<Cuda>(); }

GpuAssignment::GpuAssignment(std::string device, int workers, std::function<int()> gpus)
    : device_(std::move(device)), count_(std::move(gpus)) {
  if (device_ != "cuda" && device_ != "auto") gpus_ = 0;
  if (device_ != "cuda" || workers == 0) return;
  const int there = this->gpus();
  check(workers <= there,
        "--workers {} --device cuda: each worker gets a GPU of its own, and this machine has {}; start {}, or let all "
        "share one with --device cuda:0",
        workers, there, there == 0 ? "them with --device cpu" : fmt::format("at most {}", there));
}

int GpuAssignment::gpus() {
  if (!gpus_) gpus_ = count_();
  return *gpus_;
}

std::string GpuAssignment::next(const std::set<pid_t>& alive) {
  if (gpus() == 0) return device_;
  std::vector<int> workers(static_cast<size_t>(gpus()));
  std::erase_if(given_, [&](const auto& given) { return !alive.contains(given.first); });
  for (const auto& [pid, gpu] : given_) ++workers[static_cast<size_t>(gpu)];
  next_ = static_cast<int>(std::ranges::min_element(workers) - workers.begin());
  return fmt::format("cuda:{}", next_);
}

void GpuAssignment::given_to(pid_t worker) {
  if (gpus() > 0) given_[worker] = next_;
}

}  // namespace elinvar
