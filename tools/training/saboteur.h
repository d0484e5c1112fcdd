#pragma once
// Carries faults out (elastic/session/chaos.h) that a run was asked to have: signals to workers on this machine, at
// moments that the coordinator's process notes, and after delays that a thread of its own waits for. Each is told as an
// event with the cause "chaos".
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "elastic/session/chaos.h"

namespace elinvar {

class Saboteur {
 public:
  struct Worker {
    pid_t pid = 0;
    int id = 0;  // 0: none yet
    bool member = false;
  };
  struct World {
    std::function<std::vector<Worker>()> workers;  // on this machine: members, the leader first, then others
    std::function<void()> start_worker;
    std::function<void(const std::string& event, const nlohmann::json& fields)> event;
  };

  // `recorded`: the updates that the ledger holds of an earlier part of the run, whose faults do not happen again;
  // -1: there was none.
  Saboteur(const Chaos& chaos, World world, int64_t recorded);
  ~Saboteur();  // whoever is stopped goes on

  void note(const Moment& moment);  // it has come; what follows from it is done by
  void act();

 private:
  using Clock = std::chrono::steady_clock;
  struct Shot {
    std::shared_ptr<const int> process;  // a descriptor: another process may get the same number
    int signal = 0;
  };
  void strike(const Fault& fault);
  void strike(const Strike& strike, const Worker& worker, const Moment& moment);
  void shoot(const Worker& worker, int signal, double after);
  void tell(const std::string& what, const Worker& worker, nlohmann::json fields);
  void let_go_on();
  void wait_and_shoot(const std::stop_token& stop);

  Chaos chaos_;
  World world_;
  std::vector<Moment> moments_;
  std::set<pid_t> gone_;                        // killed, or asked to leave
  std::map<pid_t, Clock::time_point> stopped_;  // until then

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<Clock::time_point, Shot> shots_;
  std::jthread shooter_;
};

// The workers of a job (`status`: Coordinator::status) that are on this machine, members first, the leader before the
// others, then newcomers, and then those of the processes `started` here that nobody knows yet.
std::vector<Saboteur::Worker> workers_here(const nlohmann::json& status, std::set<pid_t> started);

}  // namespace elinvar
