#pragma once
// One of the two runs that `repro bisect` compares, and the environments in which its steps can be replayed: those of
// its workers, as far as this machine and its programs match them.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "elastic/run/run_record.h"
#include "tools/repro/subprocess.h"
#include "tools/trace/reproducer.h"
#include "tools/trace/trace_file.h"

namespace elinvar {

// The device on which the steps of a worker can be replayed: its own or, for a GPU, any one here of the same model. If
// there is none, another GPU or the CPU, and `lack` says what differs. `gpus`: models of the GPUs of this machine.
struct DeviceMatch {
  std::string device, lack = {};
};
DeviceMatch match_device(const nlohmann::json& environment, const std::vector<std::string>& gpus);

struct ReplayEnvironment {
  std::filesystem::path program;  // a `repro`
  std::string device, isa;
  int threads = 1;

  nlohmann::ordered_json about() const;
  std::string text() const;  // "cpu, avx2, 4 threads"
};

class Side {
 public:
  // `name`: "a" or "b". `binary`: the `repro` to use; "": the one next to each worker's program.
  Side(std::string name, const std::string& directory, const std::string& binary);

  const std::string& name() const { return name_; }
  const RunRecord& run() const { return run_; }
  std::string path() const { return run_.path().string(); }
  // At least one; workers with equal environments share one. The first belongs to the worker that began the run.
  const std::vector<ReplayEnvironment>& environments() const { return environments_; }
  // How they differ from those of the run, in words. If they do, a replay proves nothing about the run.
  const std::vector<std::string>& lacks() const { return lacks_; }

  // Both run `repro trace` and throw Failure if it fails.
  Trace trace(Subprocess& subprocess, const ReplayEnvironment& replay, int64_t step) const;
  Reproducer tensors(Subprocess& subprocess, const ReplayEnvironment& replay, int64_t step, size_t op) const;

 private:
  void add_environment(const nlohmann::json& environment, const std::string& binary);
  std::filesystem::path program_of(const nlohmann::json& environment, const std::string& binary);
  void lack(const std::string& what);
  void run_trace(Subprocess& subprocess, const ReplayEnvironment& replay, std::vector<std::string> arguments) const;

  std::string name_;
  RunRecord run_;
  std::vector<ReplayEnvironment> environments_;
  std::vector<std::string> lacks_;
};

}  // namespace elinvar
