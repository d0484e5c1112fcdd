#pragma once
// Divides the time of a run between training and interruptions. The reference is the usual time of a step with the same
// members. Time that an interval between two steps takes beyond it is lost to the gravest cause noted in the interval.
// A slow step without a cause counts as training. Goodput is the fraction of the time that went to training.
//
//   {"seconds":724.1,"goodput":0.982,"training":711.3,
//    "lost":{"starting":{"seconds":3.1,"times":1},"recovering":{"seconds":9.7,"times":2}}}
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace elinvar {

class Goodput {
 public:
  // The causes, the gravest first. `changing`: workers join or leave by plan; `finishing`: after the last step.
  enum class Cause { starting, holding, recovering, evaluating, checkpointing, changing, finishing };

  explicit Goodput(double now);  // starts the run; seconds of any monotonic clock
  // Notes a cause at this time: it counts for the first step that is done then or later.
  void note(Cause cause, double when = 0);
  // The members of this generation have done a step.
  void step(double now, int64_t generation);
  void finish(double now);

  double share(double now) const;
  nlohmann::ordered_json summary(double now) const;

 private:
  static constexpr size_t kCauses = 7;
  struct Lost {
    double seconds = 0;
    int64_t times = 0;
  };
  double usual_step() const;  // the median time of the last undisturbed steps
  void lose(size_t cause, double seconds);

  double begin_, last_, end_ = 0;
  std::array<std::optional<double>, kCauses> noted_{};  // the time of each noted cause
  std::array<Lost, kCauses> lost_{};
  std::deque<double> undisturbed_;
  int64_t generation_ = 0;
};

}  // namespace elinvar
