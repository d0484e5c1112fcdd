#pragma once
// Idle nodes of a Slurm cluster as a source of machines (source.h). It uses Slurm's command-line programs, without a
// shell, and parses their output strictly. If a command fails or hangs, nothing changes.
#include <map>
#include <string>
#include <vector>

#include "tools/pool/hosts/source.h"

namespace elinvar::pool {

class SlurmSource final : public Source {
 public:
  SlurmSource(const SourceOptions& options, const std::string& program);
  std::vector<Machine> machines(double now, int wanted) override;
  std::vector<std::string> command(const Machine& machine, std::vector<std::string> words) const override;
  bool release(const Machine& machine) override;
  void want_nothing() override;

  struct Node {
    std::string name, state;
    int cpus = 1, gpus = 0;
  };
  static std::vector<Node> parse_nodes(const std::string& sinfo);
  struct Allocation {
    std::string id, state, node;
    double until = kNever;
  };
  static std::vector<Allocation> parse_allocations(const std::string& squeue);

 private:
  std::string path_of(const std::string& command) const;
  std::string ask(const std::string& command, std::vector<std::string> words) const;
  void harvest(const Node& node, double now);
  int slots_of(const Node& node) const;
  Machine machine_of(const Allocation& allocation, const Node& node) const;

  SourceOptions options_;
  std::string program_;
  struct Pending {
    double since = 0;
    int slots = 1;  // of the allocation once it runs
  };
  std::map<std::string, Pending> pending_;  // allocations that wait, by id
  std::map<std::string, Node> nodes_;       // all nodes ever seen, by name
  double quiet_until_ = 0, asked_at_ = 0;
  std::vector<Machine> last_;
};

}  // namespace elinvar::pool
