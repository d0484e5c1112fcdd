#pragma once
// A pool in a fake world (fake_world.h) with its daemon's loop, for tests of the scheduler.
#include <gtest/gtest.h>

#include <optional>

#include "tests/pool/fake_world.h"
#include "tools/pool/page/view.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/profiling/speed.h"

namespace elinvar::pool::test {

// Speed proportional to the number of workers.
class EvenSpeed final : public Speed {
 public:
  Rate rate(const Allocation& allocation, const WorkerShape&) const override {
    return {.samples = static_cast<double>(workers(allocation))};
  }
};

// A pool and its world.
class Scene {
 protected:
  explicit Scene(uint64_t seed) : world_(store_, seed) {}

  // Starts a daemon, perhaps after another one.
  void serve() {
    auto source = std::make_unique<FakeSource>();
    if (source_ != nullptr) *source = *source_;
    std::vector<NamedSource> sources;
    source_ = source.get();
    sources.push_back({"fake", std::move(source)});
    scheduler_.emplace(store_, world_, std::move(sources), options());
  }
  SchedulerOptions options() const {
    return {.policy = policy_,
            .speed = [learns = learns_](const JobRecord&,
                                        const std::vector<Measurement>& measured) -> std::shared_ptr<const Speed> {
              if (learns) return std::make_shared<FittedSpeed>(4, 10, measured);
              return std::make_shared<EvenSpeed>();
            },
            .grace = 10,
            .replan = 20,
            .idle = 60,
            .patience = 300,
            .turn = 20,
            .horizon = 60};
  }
  void machines(std::vector<Machine> there) {
    if (source_ == nullptr) serve();
    source_->there = std::move(there);
  }
  static Machine machine(const std::string& host, int slots, const std::string& kind = "cpu-1") {
    return {.host = host, .kind = kind, .device = "cpu", .slots = slots};
  }
  Id submit(int64_t steps, int least = 1, int most = 8, int priority = 0) {
    JobRecord job;
    job.name = "job";
    job.min_workers = least;
    job.max_workers = job.fixed_workers = most;
    job.priority = priority;
    job.submitted = now_;
    job.batch = 10;
    job.steps = steps;
    return store_.jobs.add(job);
  }
  void tick(double seconds = 1) {
    now_ += seconds;
    world_.advance(seconds);
    scheduler_->tick(now_);
  }
  void ticks(int count) {
    for (int i = 0; i < count; ++i) tick();
  }
  JobRecord job(Id id) const { return *store_.jobs.find(id); }
  std::string story() const { return log_text(log_view(store_.log.last(0, 400))); }
  size_t count(const std::string& what, Id id = 0) const {
    size_t n = 0;
    for (const LogLine& line : store_.log.last(id, 1 << 20)) n += line.what == what;
    return n;
  }

  Store store_{":memory:"};
  FakeWorld world_;
  double now_ = 1000;
  FakeSource* source_ = nullptr;
  std::optional<Scheduler> scheduler_;
  Policy policy_ = equal;
  bool learns_ = false;  // uses speeds from measurements
};

}  // namespace elinvar::pool::test
