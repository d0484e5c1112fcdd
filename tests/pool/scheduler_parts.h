#pragma once
// The parts of a scheduler in a fake world, with one job and two slots of a host, for tests of single parts. The policy
// gives the job the slots in `give_`, in the shape `shape_`.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/pool/inventory_scene.h"
#include "tools/pool/daemon/reconciler.h"

namespace elinvar::pool::test {

class SchedulerParts : public InventoryScene {
 protected:
  SchedulerParts() {
    source_->there = {{.host = "a", .kind = "cpu-1", .device = "cpu", .slots = 2}};
    refresh(1);
    JobRecord job;
    job.steps = 1000;
    job.max_workers = 2;
    job.batch = 10;
    job_ = store_.jobs.add(job);
    options_.replan = 10;
    options_.speed = [](const JobRecord&, const std::vector<Measurement>&) {
      struct Even final : Speed {
        Rate rate(const Allocation& a, const WorkerShape&) const override {
          return {static_cast<double>(workers(a)), 0.5};
        }
      };
      return std::make_shared<Even>();
    };
    options_.policy = [this](const Pool& pool) {
      ++plans_;
      pool_ = pool;
      Plan plan;
      for (const Job& j : pool.jobs)
        plan.decisions.push_back({.job = j.id, .slots = give_, .shape = shape_, .reason = "a test wants it"});
      return plan;
    };
  }
  void launch(bool coordinator) {
    const std::vector<Id> slots = coordinator ? std::vector<Id>{} : std::vector<Id>{ids()[0]};
    processes_.launch(
        {.job = job_, .coordinator = coordinator, .slots = slots},
        [&](const ProcessRecord& p) {
          return coordinator ? std::vector<std::string>{"train", "run"}
                             : std::vector<std::string>{"train", "join", "--name", p.name()};
        },
        1);
  }
  size_t lines(const std::string& what) const {
    size_t count = 0;
    for (const LogLine& line : store_.log.last(0, 1000)) count += line.what == what;
    return count;
  }

  Id job_ = 0;
  std::vector<Id> give_;
  WorkerShape shape_;
  Pool pool_;  // of the newest plan
  int plans_ = 0;
  SchedulerOptions options_;
  FakeWorld world_{store_};
  HostBackoff backoff_;
  ProcessTable processes_{store_, world_};
  Placement placement_{inventory_, backoff_, processes_};
  Profiler profiler_{store_};
  Planner planner_{store_, options_, inventory_, placement_, processes_, profiler_};
  JobLifecycle lifecycle_{store_, world_, options_, placement_, backoff_, processes_, profiler_, planner_};
  Reconciler reconciler_{store_, world_, options_, inventory_, placement_, backoff_, processes_, planner_, lifecycle_};
};

}  // namespace elinvar::pool::test
