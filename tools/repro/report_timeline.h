#pragma once
// The timeline of a run's processes, from events.jsonl and the records of generations: a row for each process that ever
// introduced itself. The axis is in seconds; the time between a part of the run and its resumption has no length.
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "elastic/step/generation.h"

namespace elinvar {

class TimeAxis {
 public:
  // `events`: in the order of their file. `steps`: times of steps, ascending, in seconds since 1970.
  TimeAxis(const std::vector<nlohmann::json>& events, const std::vector<double>& steps);
  double at(double calendar) const;  // seconds since the start
  double end() const;
  const std::vector<double>& resumed() const { return resumed_; }  // where a part of the run ended and the next began

 private:
  double begin_ = 0, last_ = 0;
  std::vector<std::pair<double, double>> cuts_;  // (time, seconds that are cut out at that time)
  std::vector<double> resumed_;
};

// {"workers":[{"id","peer","from","to","how","reason","spans":[{"from","to","generation","vranks"}]}],
//  "workers_left_out":.., "bands":[{"from","to","what","reason"}], "resumed":[..], "seconds":..}
// id 0: never became a member. Before its first span, a process receives the state. how: "died", "evicted" by an audit,
// "left", "refused", "ended" with the job, "gone" without a message, or "" if it still runs. If there are very many
// workers, the list has those that ran longest; if there are very many changes, as many as a screen can show.
nlohmann::ordered_json timeline(const std::vector<nlohmann::json>& events, const std::vector<Generation>& generations,
                                const TimeAxis& axis);

}  // namespace elinvar
