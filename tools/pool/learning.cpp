// The keeper: what it learns of a job that runs.
#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/base/check.h"
#include "tools/pool/advisor.h"
#include "tools/pool/keeper.h"
#include "tools/pool/observe.h"
#include "tools/pool/policies/offer.h"

namespace elinvar::pool {
namespace {

constexpr double kMeasureEvery = 5;    // seconds
constexpr int64_t kLeastMeasured = 5;  // steps
constexpr double kNews = 0.2;          // a cost that differs by this part is told again
constexpr double kCoordinates = 60;    // seconds: a coordinator that begins later is one that has taken over

}  // namespace

// What a worker has decided by itself.
void Keeper::look_at_readers(const JobRecord& job, const Sight& sight) {
  std::string& told = readers_[job.id];
  if (told == sight.readers) return;
  told = sight.readers;
  log(job.id, "readers", told);
}

// What its start took, and what its validations are worth.
void Keeper::look_besides(JobRecord& job, const Sight& sight) {
  if (sight.measured_steps < kLeastMeasured || sight.measured_seconds <= 0) return;
  const double step = sight.measured_seconds / static_cast<double>(sight.measured_steps);
  const bool of_this_start = sight.coordinated_at - job.since < kCoordinates;
  const double start = of_this_start ? sight.first_step_at - step - job.since : 0;
  const JobRecord before = job;
  if (start > 0) job.took.start = start;
  if (sight.validations > 0)
    job.validations.samples =
        sight.validation_seconds / static_cast<double>(sight.validations) / step * static_cast<double>(job.batch);
  if (job.took.start != before.took.start || job.validations.samples != before.validations.samples) store_.save(job);
}

// What it does with the workers that it has now, if these are the ones that it was seen with.
void Keeper::measure(JobRecord& job, const Sight& sight) {
  if (sight.measured_steps < kLeastMeasured || sight.measured_seconds <= 0) return;
  if (now_ - measured_at_[job.id] < kMeasureEvery) return;
  Mix mix;
  int present = 0;
  for (const ProcessRecord* w : workers_of(job.id)) {
    const SlotRecord* s = slot(w->slots.front());
    if (!w->met || w->leaving > 0 || s == nullptr) return;
    ++mix[s->kind];
    ++present;
  }
  if (present == 0 || present != sight.workers) return;
  measured_at_[job.id] = now_;
  if (std::exchange(measured_[job.id], sight.generation) != sight.generation) changed_ = true;
  const double samples = static_cast<double>(sight.measured_steps * job.batch);
  Measurement measurement{
      .workers = mix, .form = job.form, .seconds = sight.measured_seconds, .rate = samples / sight.measured_seconds};
  if (const auto found = promised_.find(job.id); found != promised_.end()) {
    Promise& promise = found->second;
    if (promise.mix == mix && promise.form == job.form) {
      measurement.trial = promise.trial;
      if (promise.generation == 0) promise.generation = sight.generation;
      if (promise.generation == sight.generation) {  // it is kept or broken once
        measurement.predicted = promise.rate;
        measurement.doubt = promise.doubt;
        if (!promise.judged && measurement.seconds >= kTrialSeconds) judge(job, measurement);
        promise.judged = measurement.seconds >= kTrialSeconds;
      }
    }
  }
  store_.measure(job.id, sight.generation, measurement);
  look_at_changes(job, sight);
}

// What joins, leaves, deaths and stops have cost it, by the medians of those that were seen.
void Keeper::look_at_changes(JobRecord& job, const Sight& sight) {
  std::map<int, double> usual;
  for (const Measurement& m : store_.measurements(job.id))
    if (m.form == job.form && m.rate > 0)
      usual[elinvar::pool::workers(m.workers)] = static_cast<double>(job.batch) / m.rate;
  RescaleCosts seen = costs_seen(sight.turns, usual, changes_seen(store_.processes_of(job.id)));
  seen.start = job.took.start;  // which is known from its coordinator
  const RescaleCosts before = std::exchange(job.took, completed(seen, job.took));
  store_.save(job);
  if (std::any_of(std::begin(kCosts), std::end(kCosts), [&](const NamedCost& cost) {
        return std::abs(job.took.*cost.seconds - before.*cost.seconds) > kNews * job.took.*cost.seconds;
      }))
    log(job.id, "costs", text_of(job.took));
}

// A prediction and what came of it.
void Keeper::judge(const JobRecord& job, const Measurement& m) {
  if (m.predicted <= 0) return;
  log(job.id, "speed",
      fmt::format("{}: {:.4g} samples/s; {:.4g} were predicted, {:+.1f} % (to {:.1f} %)", text_of(m.workers), m.rate,
                  m.predicted, 100 * (m.predicted / m.rate - 1), 100 * m.doubt));
}

}  // namespace elinvar::pool
