#pragma once
// One of the runs that `repro bisect` is given, and the ways in which its steps can be done again: as each of its
// workers computed them, as far as this machine and the programs on it are theirs.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastic/run/run_record.h"
#include "tools/repro/workplace.h"
#include "tools/trace/reproducer.h"
#include "tools/trace/trace_file.h"

namespace elinvar {

// Where the steps of a worker can be done again: on its device, or, of GPUs, on one of the same model, wherever it
// sits; else on any, else on the CPU, and then `lack` tells what is not as it was. `gpus`: the models of those that are
// here.
struct Stand {
  std::string device, lack = {};
};
Stand stand_for(const nlohmann::json& environment, const std::vector<std::string>& gpus);

struct Way {
  std::filesystem::path program;  // a `repro`
  std::string device, isa;
  int threads = 1;

  nlohmann::ordered_json about() const;
  std::string text() const;  // "cpu, avx2, 4 threads"
};

class Side {
 public:
  // `name`: "a" or "b". `binary`: the `repro` to use; empty: the one beside each worker's program.
  Side(std::string name, const std::string& directory, const std::string& binary);

  const std::string& name() const { return name_; }
  const RunRecord& run() const { return run_; }
  std::string path() const { return run_.path().string(); }
  // At least one; of workers that computed alike one. The first is that of the worker with which the run began.
  const std::vector<Way>& ways() const { return ways_; }
  // What of them is not as it was, in words: what comes out is then no proof of how it was.
  const std::vector<std::string>& lacks() const { return lacks_; }

  // `repro trace`; Failure if it cannot be done.
  Trace trace(Workplace& place, const Way& way, int64_t step) const;
  Reproducer tensors(Workplace& place, const Way& way, int64_t step, size_t op) const;

 private:
  void add_way(const nlohmann::json& environment, const std::string& binary);
  std::filesystem::path program_of(const nlohmann::json& environment, const std::string& binary);
  void lack(const std::string& what);
  void run_trace(Workplace& place, const Way& way, std::vector<std::string> arguments) const;

  std::string name_;
  RunRecord run_;
  std::vector<Way> ways_;
  std::vector<std::string> lacks_;
};

}  // namespace elinvar
