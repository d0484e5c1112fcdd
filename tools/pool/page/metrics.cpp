#include "tools/pool/page/metrics.h"

#include <map>
#include <vector>

#include "tools/pool/profiling/prediction_error.h"
#include "tools/web/prometheus_text.h"

namespace elinvar::pool {

using State = JobRecord::State;

std::string pool_metrics(const Store& store) {
  std::map<State, int64_t> states;
  for (const State state : {State::waiting, State::running, State::finished, State::failed, State::cancelled})
    states[state] = 0;
  std::map<Id, int64_t> workers;
  int64_t used = 0;
  for (const ProcessRecord& p : store.processes.present()) {
    if (p.coordinator) continue;
    ++workers[p.job];
    used += std::ssize(p.slots);
  }
  std::vector<JobRecord> open;
  for (JobRecord& j : store.jobs.all()) {
    ++states[j.state];
    if (!j.over()) open.push_back(std::move(j));
  }
  const auto labels = [](const JobRecord& j) {
    return PrometheusText::Labels{{"job", std::to_string(j.id)}, {"name", j.name}};
  };

  PrometheusText page("elinvar_pool_");
  page.metric("jobs", "gauge", "Jobs in each state.");
  for (const auto& [state, count] : states) page.sample(count, {{"state", name_of(state)}});
  page.metric("slots", "gauge", "Slots that are there.");
  page.sample(std::ssize(store.slots.present()));
  page.metric("slots_used", "gauge", "Slots with a worker.");
  page.sample(used);
  page.metric("job_steps", "gauge", "Steps that an open job has made.");
  for (const JobRecord& j : open) page.sample(j.step, labels(j));
  page.metric("job_workers", "gauge", "Workers of an open job.");
  for (const JobRecord& j : open) page.sample(workers[j.id], labels(j));
  page.metric("job_samples_per_second", "gauge", "Its speed, as measured last.");
  for (const JobRecord& j : open) {
    const std::vector<Measurement> measured = store.measurements.of(j.id);
    page.sample(workers[j.id] > 0 && !measured.empty() ? measured.back().rate : 0.0, labels(j));
  }

  const PredictionErrors errors = prediction_errors(store.measurements.all());
  page.metric("prediction_error", "gauge", "Relative error of predicted speeds.");
  for (const auto& [sure, part] : {std::pair("false", errors.all), std::pair("true", errors.sure)}) {
    page.sample(part.median, {{"sure", sure}, {"quantile", "0.5"}});
    page.sample(part.high, {{"sure", sure}, {"quantile", "0.9"}});
  }
  page.metric("predictions_total", "counter", "Predictions of speed that were compared with a measurement.");
  page.sample(static_cast<int64_t>(errors.all.count));
  page.metric("trial_seconds", "gauge", "Time of jobs, at their best known speed, that trials of speeds have cost.");
  page.sample(errors.paid);
  return page.text();
}

}  // namespace elinvar::pool
