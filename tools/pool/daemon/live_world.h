#pragma once
// The real World of the scheduler: processes of this host, run directories, and `train ctl`.
#include <map>
#include <memory>

#include "tools/pool/daemon/scheduler.h"

namespace elinvar::pool {

class LiveWorld final : public World {
 public:
  // `keys`: jobs use other hosts, so each gets a key of its own.
  LiveWorld(const Store& store, std::string train, bool keys);

  void prepare(const JobRecord& job) override;
  std::string start(const std::vector<std::string>& words, const std::filesystem::path& log) override;
  std::string find(const std::vector<std::string>& words) override { return find_process(words); }
  ProcessState state(const std::string& handle) override { return process_state(handle); }
  void kill(const std::string& handle) override { kill_process(handle); }
  std::string end_of_log(const std::filesystem::path& log) override;
  int64_t kernel_kills() override { return pool::kernel_kills(); }
  const RunStatus& status(Id job, double now) override;
  void request(Id job, const std::vector<std::string>& words) override;

 private:
  struct Looked {
    RunStatusReader watch;
    double at;
    RunStatus status;
  };
  const Store& store_;
  std::string train_;
  bool keys_;
  std::map<Id, Looked> looked_;
  std::vector<std::string> asking_;  // handles of running `train ctl` processes
};

}  // namespace elinvar::pool
