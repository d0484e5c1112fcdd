#include "tools/pool/sim/simulated_job.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar::pool {
namespace {

class LinearSpeed : public Speed {
 public:
  explicit LinearSpeed(std::shared_ptr<const Speed> truth) : truth_(std::move(truth)) {}
  Rate rate(const Allocation& allocation, const WorkerShape& shape) const override {
    Rate sum;
    for (const auto& [kind, n] : allocation) sum.samples += n * truth_->rate({{kind, 1}}, shape).samples;
    return sum;
  }

 private:
  std::shared_ptr<const Speed> truth_;
};

}  // namespace

SimulatedJob simulated_job(const Trace& trace, const TraceJob& traced, Id id, const Table& table, Belief belief) {
  SimulatedJob j;
  j.job = job_of(traced, id, table);
  j.truth = j.job.speed;
  if (belief == Belief::kLinear) j.job.speed = std::make_shared<LinearSpeed>(j.truth);
  std::vector<std::string> kinds = traced.kinds;
  for (const TraceHost& host : trace.hosts)
    if (traced.kinds.empty() && std::find(kinds.begin(), kinds.end(), host.kind) == kinds.end())
      kinds.push_back(host.kind);
  double alone = 0;  // seconds alone on the first kind that it can run on
  for (const std::string& kind : kinds) {
    const bool asked = alone == 0;
    for (const WorkerShape& shape : j.job.shapes) {
      j.reference = std::max(j.reference, j.truth->rate({{kind, 1}}, shape).samples);
      if (asked) alone = std::max(alone, j.truth->rate({{kind, traced.fixed}}, shape).samples);
    }
  }
  check(j.reference > 0, "job {} of the trace: the table has no rate of {} on the kinds that it may use", id,
        traced.model);
  j.outcome.model = traced.model;
  j.outcome.submitted = traced.submitted;
  j.outcome.total = j.job.total;
  j.outcome.alone = j.job.total / alone;
  return j;
}

}  // namespace elinvar::pool
