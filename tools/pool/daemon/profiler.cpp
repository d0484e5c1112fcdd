#include "tools/pool/daemon/profiler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/base/check.h"
#include "tools/pool/profiling/trials.h"
#include "tools/pool/profiling/rescale_costs.h"

namespace elinvar::pool {
namespace {

constexpr double kMeasureEvery = 5;    // seconds
constexpr int64_t kLeastMeasured = 5;  // steps
constexpr double kNews = 0.2;          // relative change of a cost that is logged
constexpr double kCoordinates = 60;    // seconds: a coordinator that starts later has taken over

bool enough_steps(const RunStatus& status) {
  return status.measured_steps >= kLeastMeasured && status.measured_seconds > 0;
}

}  // namespace

bool Profiler::predicted(Id job, const Allocation& allocation, const WorkerShape& shape) const {
  const auto found = profiles_.find(job);
  if (found == profiles_.end() || !found->second.prediction) return false;
  return found->second.prediction->allocation == allocation && found->second.prediction->shape == shape;
}

void Profiler::predict(Id job, Prediction prediction) {
  Profile& profile = profiles_[job];
  profile.prediction = std::move(prediction);
  profile.predicted_generation = 0;
  profile.compared = false;
}

bool Profiler::observe(JobRecord& job, const RunStatus& status, const std::optional<Allocation>& allocation,
                       double now) {
  note_readers(job, status, now);
  if (!enough_steps(status)) return false;
  measure_start_and_validations(job, status);
  Profile& profile = profiles_[job.id];
  if (profile.measured_at && now - *profile.measured_at < kMeasureEvery) return false;
  if (!allocation || allocation->empty() || workers(*allocation) != status.workers) return false;
  profile.measured_at = now;
  const bool first = std::exchange(profile.measured_generation, status.generation) != status.generation;
  const double samples = static_cast<double>(status.measured_steps * job.batch);
  Measurement measurement{.workers = *allocation,
                          .shape = job.shape,
                          .seconds = status.measured_seconds,
                          .rate = samples / status.measured_seconds};
  if (predicted(job.id, *allocation, job.shape)) {
    const Prediction& prediction = *profile.prediction;
    measurement.trial = prediction.trial;
    if (profile.predicted_generation == 0) profile.predicted_generation = status.generation;
    if (profile.predicted_generation == status.generation) {  // each prediction is compared in one generation
      measurement.predicted = prediction.rate;
      measurement.predicted_error = prediction.error;
      const bool long_enough = measurement.seconds >= kTrialSeconds;
      if (!profile.compared && long_enough) compare(job, measurement, now);
      profile.compared = long_enough;
    }
  }
  store_.measurements.record(job.id, status.generation, measurement);
  measure_rescale_costs(job, status, now);
  return first;
}

void Profiler::ran_out_of_memory(const JobRecord& job, const ProcessRecord& worker, const std::string& kind,
                                 int alike) {
  store_.measurements.record_out_of_memory(worker, {.workers = {{kind, alike}}, .shape = job.shape});
}

void Profiler::stopped(Id job, bool keeps_prediction) {
  const auto found = profiles_.find(job);
  if (found == profiles_.end()) return;
  if (!keeps_prediction) found->second.prediction.reset();
  found->second.measured_at.reset();
}

void Profiler::clock_was_set_back() {
  for (auto& [job, profile] : profiles_) profile.measured_at.reset();
}

// Logs changes of the number of reader threads, which workers choose themselves.
void Profiler::note_readers(const JobRecord& job, const RunStatus& status, double now) {
  std::string& known = profiles_[job.id].readers;
  if (known == status.readers) return;
  known = status.readers;
  store_.log.add(now, job.id, "readers", known);
}

void Profiler::measure_start_and_validations(JobRecord& job, const RunStatus& status) {
  const double step = status.measured_seconds / static_cast<double>(status.measured_steps);
  const bool of_this_start = status.coordinated_at - job.since < kCoordinates;
  const double start = of_this_start ? status.first_step_at - step - job.since : 0;
  const JobRecord before = job;
  if (start > 0) job.costs.start = start;
  if (status.validations > 0)
    job.validations.samples =
        status.validation_seconds / static_cast<double>(status.validations) / step * static_cast<double>(job.batch);
  if (job.costs.start != before.costs.start || job.validations.samples != before.validations.samples)
    store_.jobs.save(job);
}

// The costs of joins, leaves, deaths and stops are medians of those observed.
void Profiler::measure_rescale_costs(JobRecord& job, const RunStatus& status, double now) {
  std::map<int, double> usual;
  for (const Measurement& m : store_.measurements.of(job.id))
    if (m.shape == job.shape && m.rate > 0) usual[workers(m.workers)] = static_cast<double>(job.batch) / m.rate;
  RescaleCosts measured = measured_costs(status.turns, usual, rescale_events(store_.processes.of(job.id)));
  measured.start = job.costs.start;  // measured from its coordinator's events
  const RescaleCosts before = std::exchange(job.costs, completed(measured, job.costs));
  store_.jobs.save(job);
  if (std::any_of(std::begin(kCosts), std::end(kCosts), [&](const NamedCost& cost) {
        return std::abs(job.costs.*cost.seconds - before.*cost.seconds) > kNews * job.costs.*cost.seconds;
      }))
    store_.log.add(now, job.id, "costs", text_of(job.costs));
}

void Profiler::compare(const JobRecord& job, const Measurement& m, double now) {
  if (m.predicted <= 0) return;
  store_.log.add(now, job.id, "speed",
                 fmt::format("{}: {:.4g} samples/s; {:.4g} were predicted, {:+.1f} % (to {:.1f} %)", text_of(m.workers),
                             m.rate, m.predicted, 100 * (m.predicted / m.rate - 1), 100 * m.predicted_error));
}

}  // namespace elinvar::pool
