#pragma once
// The true speeds of jobs in a simulation, and the costs of changes. Read from a JSON file:
//
//   {"models": {
//      "resnet50": {
//        "provenance": "how each figure came about",
//        "virtual_ranks": 32, "batch": 256,
//        "costs": {"start": .., "join": .., "join_stall": .., "leave": .., "leave_stall": .., "death_stall": ..,
//                  "stop": .., "finish": .., "checkpoint_every": ..},        seconds, RescaleCosts of state.h; all > 0
//        "validations": {"every": 500, "samples": 2048},                        Validations of state.h
//        "rates": [{"kind": "V100", "workers": 4, "rate": 1500, "width": 1, "recompute": false, "measured": true},
//        ..]}}}
//
// `rate` is samples per second. Optional: width, recompute and measured (default 1, false, false), finish (as stop),
// and validations (none). `bench elastic --json` measures the costs (join: "ready in", join_stall: "others wait",
// death_stall: "to the end of the step", ...), and `train run --workers N` prints the rates. A cost of 0 is rejected,
// because every change takes time.
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct Model {
  std::string name, provenance;
  int virtual_ranks = 0;
  double batch = 0;
  RescaleCosts costs;
  Validations validations = {};
  std::shared_ptr<const Speed> speed;
  std::vector<WorkerShape> shapes;  // with rates, the usual one first
};

using Table = std::map<std::string, Model>;

Table read_table(const std::filesystem::path& path);
Table parse_table(const std::string& json, const std::string& name);  // `name` is for errors

// Between sizes in the table the time of a step is linear in the logarithm of the number of workers. Below the smallest
// size, workers count as independent; above the largest, more workers gain nothing. In a mixed allocation each worker
// is as fast as among as many workers of its own kind, and heterogeneous_split.h splits the virtual ranks. A kind or
// shape without rates cannot run.
class TableSpeed : public Speed {
 public:
  TableSpeed(int virtual_ranks, double batch) : virtual_ranks_(virtual_ranks), batch_(batch) {}
  void add(const std::string& kind, const WorkerShape& shape, int workers, double rate);
  Rate rate(const Allocation& allocation, const WorkerShape& shape) const override;

 private:
  double alike(const std::string& kind, const WorkerShape& shape, int n) const;

  int virtual_ranks_;
  double batch_;
  std::map<std::pair<std::string, WorkerShape>, std::map<int, double>> rates_;
};

}  // namespace elinvar::pool
