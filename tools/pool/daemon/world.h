#pragma once
// The scheduler's interface to the outside: processes of this host, run directories, and requests to coordinators.
// LiveWorld implements it; tests have their own implementation.
#include <filesystem>
#include <string>
#include <vector>

#include "tools/pool/hosts/process.h"
#include "tools/pool/daemon/run_status.h"
#include "tools/pool/store/job_records.h"

namespace elinvar::pool {

class World {
 public:
  virtual ~World() = default;
  virtual void prepare(const JobRecord& job) = 0;  // makes the job's directory, before its coordinator is started
  // As in process.h: start() returns a handle, find() "" if there is no such process.
  virtual std::string start(const std::vector<std::string>& words, const std::filesystem::path& log) = 0;
  virtual std::string find(const std::vector<std::string>& words) = 0;
  virtual ProcessState state(const std::string& handle) = 0;
  virtual void kill(const std::string& handle) = 0;
  virtual std::string end_of_log(const std::filesystem::path& log) = 0;
  virtual int64_t kernel_kills() = 0;
  // The reference stays valid until the next call for this job. Throws Failure if the run directory cannot be read.
  virtual const RunStatus& status(Id job, double now) = 0;
  // Runs `train ctl` on the job without waiting for it: {"stop"} or {"drain", worker's name}.
  virtual void request(Id job, const std::vector<std::string>& words) = 0;
};

}  // namespace elinvar::pool
