#include "tools/pool/profiling/job_models.h"

#include <algorithm>

namespace elinvar::pool {
namespace {

// Settings that do not affect the time of a step.
constexpr const char* kIndifferent[] = {"run.name=", "run.seed=", "run.steps=", "run.epochs="};

std::vector<std::string> that_matter(const JobRecord& job) {
  std::vector<std::string> settings = job.overrides;
  std::erase_if(settings, [](const std::string& setting) {
    return std::any_of(std::begin(kIndifferent), std::end(kIndifferent),
                       [&](const char* key) { return setting.starts_with(key); });
  });
  return settings;
}

std::shared_ptr<const FittedSpeed> fitted(const JobRecord& job, const std::vector<Measurement>& measured,
                                          const FittedSpeed* similar) {
  return std::make_shared<FittedSpeed>(job.virtual_ranks, static_cast<double>(job.batch), measured, similar);
}

}  // namespace

bool JobModels::alike(const JobRecord& a, const JobRecord& b) {
  return a.config == b.config && a.batch == b.batch && a.virtual_ranks == b.virtual_ranks &&
         that_matter(a) == that_matter(b);
}

std::shared_ptr<const Speed> JobModels::of(const JobRecord& job, const std::vector<Measurement>& measured) {
  return fitted(job, measured, similar(job).speed.get());
}

Overheads JobModels::overheads(const JobRecord& job) {
  const Similar& like = similar(job);
  Overheads overheads{.costs = completed(completed(job.costs, like.costs), {}), .validations = job.validations};
  if (overheads.validations.samples <= 0) overheads.validations.samples = like.validation;
  return overheads;
}

// Each value comes from the newest earlier job that has it.
const JobModels::Similar& JobModels::similar(const JobRecord& job) {
  if (const auto found = similar_.find(job.id); found != similar_.end()) return found->second;
  const std::vector<JobRecord> jobs = store_.jobs.all();
  Similar like;
  for (auto other = jobs.rbegin(); other != jobs.rend(); ++other) {
    if (other->id >= job.id || !alike(*other, job)) continue;
    if (like.validation <= 0) like.validation = other->validations.samples;
    like.costs = completed(like.costs, other->costs);
    if (like.speed) continue;
    const std::vector<Measurement> measured = store_.measurements.of(other->id);
    if (std::any_of(measured.begin(), measured.end(), [](const Measurement& m) { return m.rate > 0; }))
      like.speed = fitted(*other, measured, nullptr);
  }
  return similar_[job.id] = std::move(like);
}

}  // namespace elinvar::pool
