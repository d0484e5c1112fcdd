#pragma once
// A coordinator's planner of generations, and the parts of the job that it reads.
#include "elastic/protocol/generation_planner.h"
#include "tests/elastic/coordinated_job.h"

namespace elinvar::test {

struct Planner {
  explicit Planner(CoordinatorOptions options = {.steps = 100, .plan = {.vranks = 8}}) : job(options) {}
  const Generation& newest() const { return job.world.created.back(); }

  CoordinatedJob job;
  BatchScaling scaling{job.state};
  GroupPlanner groups{job.state};
  FactsOnFile facts{job.state};
  GenerationPlanner planner{job.state, scaling, groups, facts, 0};
};

inline const CoordinatorOptions kZero{.steps = 100, .arrangement = {.zero = 1, .copies = 2}, .plan = {.vranks = 8}};

// Members 1, 2 and 3 of generation 1, which keep five buckets of the optimizer's state.
struct ShardedPlanner : Planner {
  ShardedPlanner() : Planner(kZero) {
    job.run({1, 2, 3});
    job.state.current->sharding = Sharding{.keepers = kept, .holders = kept};
    for (auto& [peer, w] : job.state.workers) {
      w.about.shards = 5;
      w.completed = 1;
    }
  }
  const BucketDeal kept{.ids = {1, 2, 3}, .copies = 2};
};

}  // namespace elinvar::test
