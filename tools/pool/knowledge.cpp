#include "tools/pool/knowledge.h"

#include <algorithm>

namespace elinvar::pool {
namespace {

// Settings that make no step faster or slower.
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

bool Knowledge::alike(const JobRecord& a, const JobRecord& b) {
  return a.config == b.config && a.batch == b.batch && a.virtual_ranks == b.virtual_ranks &&
         that_matter(a) == that_matter(b);
}

std::shared_ptr<const Speed> Knowledge::of(const JobRecord& job, const std::vector<Measurement>& measured) {
  return fitted(job, measured, similar(job).speed.get());
}

Besides Knowledge::besides(const JobRecord& job) {
  const Similar& like = similar(job);
  const auto known = [](double own, double other, double usual) { return own > 0 ? own : other > 0 ? other : usual; };
  Besides besides{.costs = {}, .validations = job.validations};
  besides.costs.start = known(job.start_took, like.start_took, besides.costs.start);
  besides.costs.finish = known(job.finish_took, like.finish_took, besides.costs.finish);
  besides.validations.samples = known(job.validations.samples, like.validation, 0);
  return besides;
}

// Of each thing what the newest one before it knows.
const Knowledge::Similar& Knowledge::similar(const JobRecord& job) {
  if (const auto found = similar_.find(job.id); found != similar_.end()) return found->second;
  const std::vector<JobRecord> jobs = store_.jobs(/*over_too=*/true);
  Similar like;
  const auto fill = [](double& value, double with) { value = value > 0 ? value : with; };
  for (auto other = jobs.rbegin(); other != jobs.rend() && !(like.speed && like.finish_took > 0); ++other) {
    if (other->id >= job.id || !alike(*other, job)) continue;
    fill(like.validation, other->validations.samples);
    fill(like.start_took, other->start_took);
    fill(like.finish_took, other->finish_took);
    if (like.speed) continue;
    const std::vector<Measurement> measured = store_.measurements(other->id);
    if (std::any_of(measured.begin(), measured.end(), [](const Measurement& m) { return m.rate > 0; }))
      like.speed = fitted(*other, measured, nullptr);
  }
  return similar_[job.id] = std::move(like);
}

}  // namespace elinvar::pool
