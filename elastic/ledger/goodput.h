#pragma once
// Where the time of a run goes: to training, or to what interrupted it. The measure is what a step usually takes with
// the same members; what an interval between two steps took beyond that is lost, to the gravest cause that was noted
// in it. Without a cause a slow step is training. Goodput is the share of the time that went to training.
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
  // The gravest first. `changing`: workers join or leave by plan; `finishing`: after the last step.
  enum class Cause { starting, holding, recovering, evaluating, checkpointing, changing, finishing };

  explicit Goodput(double now);  // seconds of any clock that does not jump; the run starts
  // Something of this kind has happened at this time: it counts for the first step that is done then or later.
  void note(Cause cause, double when = 0);
  // A step is done, by the members of this generation.
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
  double usual_step() const;  // the median of the last undisturbed steps
  void lose(size_t cause, double seconds);

  double begin_, last_, end_ = 0;
  std::array<std::optional<double>, kCauses> noted_{};  // when
  std::array<Lost, kCauses> lost_{};
  std::deque<double> undisturbed_;
  int64_t generation_ = 0;
};

}  // namespace elinvar
