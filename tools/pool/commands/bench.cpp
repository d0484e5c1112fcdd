// `pool bench`: measures how long policies take to plan as the pool grows.
#include <CLI/CLI.hpp>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tools/pool/commands/commands.h"
#include "tools/pool/policies/policies.h"
#include "tools/pool/sim/random_pool.h"

namespace elinvar::pool {
namespace {

struct BenchOptions {
  std::vector<std::string> policies = {"program"};
  std::vector<int> nodes = {10, 100, 300, 1000, 2000}, jobs = {10, 30, 100, 200};
  int repeat = 5;
  int kinds = 1;
  bool json = false;
};

int run(const BenchOptions& o) {
  for (const std::string& name : o.policies) policy_of(name);  // fail early if a policy is unknown
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!o.json)
    fmt::print("{:14} {:>6} {:>6} {:>12} {:>12} {:>12}\n", "policy", "nodes", "jobs", "median ms", "worst ms",
               "worst gap %");
  for (const std::string& name : o.policies)
    for (const int nodes : o.nodes)
      for (const int jobs : o.jobs) {
        std::vector<double> seconds;
        double gap = 0;
        for (int k = 0; k < o.repeat; ++k) {
          const Pool pool = busy_pool(static_cast<uint64_t>(k), nodes, jobs, o.kinds, policy_of("equal").plan);
          const auto began = std::chrono::steady_clock::now();
          const Plan plan = policy_of(name).plan(pool);
          seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
          gap = std::max(gap, plan.gap);
          const std::vector<std::string> wrong = violations(pool, plan);
          if (!wrong.empty()) fail("{} breaks the rules: {}", name, fmt::join(wrong, "; "));
        }
        std::sort(seconds.begin(), seconds.end());
        const double median = 1e3 * seconds[seconds.size() / 2], worst = 1e3 * seconds.back();
        if (!o.json)
          fmt::print("{:14} {:6} {:6} {:12.1f} {:12.1f} {:12.3f}\n", name, nodes, jobs, median, worst, 100 * gap);
        rows.push_back({{"policy", name},
                        {"nodes", nodes},
                        {"jobs", jobs},
                        {"median_ms", median},
                        {"worst_ms", worst},
                        {"worst_gap", gap}});
      }
  if (o.json) fmt::print("{}\n", rows.dump(2));
  return 0;
}

}  // namespace

Command add_bench(CLI::App& pool) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* app = pool.add_subcommand(
      "bench",
      "how long a plan takes, over nodes and jobs; half of the jobs run, a tenth of the nodes has just changed");
  app->add_option("policies", o->policies, "which")->capture_default_str();
  app->add_option("--nodes", o->nodes, "how many slots")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(1, 1000000));
  app->add_option("--jobs", o->jobs, "how many jobs")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(1, 100000));
  app->add_option("--kinds", o->kinds, "of slots")->capture_default_str()->check(CLI::Range(1, 10));
  app->add_option("--repeat", o->repeat, "pools of each size")->capture_default_str()->check(CLI::Range(1, 1000));
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return run(*o); }};
}

}  // namespace elinvar::pool
