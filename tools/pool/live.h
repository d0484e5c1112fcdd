#pragma once
// The keeper's world as it is: processes of this host, run directories, and `train ctl`.
#include <map>
#include <memory>

#include "tools/pool/keeper.h"

namespace elinvar::pool {

class LiveWorld final : public World {
 public:
  // `keys`: jobs leave this host, and each has a key of its own.
  LiveWorld(const Store& store, std::string train, bool keys);

  void prepare(const JobRecord& job) override;
  std::string start(const std::vector<std::string>& words, const std::filesystem::path& log) override;
  std::string find(const std::vector<std::string>& words) override { return find_process(words); }
  Fate fate(const std::string& handle) override { return fate_of(handle); }
  void kill(const std::string& handle) override { kill_process(handle); }
  std::string last_words(const std::filesystem::path& log) override;
  int64_t kernel_kills() override { return pool::kernel_kills(); }
  const Sight& sight(Id job, double now) override;
  void ask(Id job, const std::vector<std::string>& words) override;

 private:
  struct Looked {
    RunWatch watch;
    double at;
    Sight sight;
  };
  const Store& store_;
  std::string train_;
  bool keys_;
  std::map<Id, Looked> looked_;
  std::vector<std::string> asking_;  // handles of `train ctl`, to be asked how they ended
};

}  // namespace elinvar::pool
