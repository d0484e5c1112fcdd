#pragma once
// Injects the faults that a run configures (elastic/session/chaos.h). It sends signals to workers on this machine,
// either at moments that the coordinator's process notes or after delays that a thread of its own waits for. Each fault
// is reported as an event with the cause "chaos".
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

class FaultInjector {
 public:
  struct Worker {
    pid_t pid = 0;
    int id = 0;  // 0: not assigned yet
    bool member = false;
  };
  struct World {
    // The workers on this machine: members first, beginning with the leader.
    std::function<std::vector<Worker>()> workers;
    std::function<void()> start_worker;
    std::function<std::string(const std::string& entries)> arrange = {};  // returns an error, or ""
    std::function<void(const std::string& event, const nlohmann::json& fields)> event;
  };

  // `recorded` is the number of updates of earlier parts of the run that the ledger holds; their faults are not
  // repeated. It is -1 if this is the first part.
  FaultInjector(const Chaos& chaos, World world, int64_t recorded);
  ~FaultInjector();  // resumes stopped workers

  void note(const Moment& moment);  // queues a moment that has come
  void act();                       // injects the faults of the moments queued so far

 private:
  using Clock = std::chrono::steady_clock;
  struct PendingSignal {
    std::shared_ptr<const int> process;  // a pidfd, because another process may reuse the pid
    int signal = 0;
  };
  void inject(const Fault& fault);
  void inject(const DrawnFault& fault, const Worker& worker, const Moment& moment);
  void send(const Worker& worker, int signal, double after);
  void tell(const std::string& what, const Worker& worker, nlohmann::json fields);
  void let_go_on();
  void send_due_signals(const std::stop_token& stop);

  Chaos chaos_;
  World world_;
  std::vector<Moment> moments_;
  // Generations that begin at the same step, and steps that are made again from a checkpoint, bring no other random
  // faults: otherwise a worker might die each time, and the run would never come further.
  int64_t newest_step_;
  std::set<pid_t> gone_;                        // killed, or asked to leave
  std::map<pid_t, Clock::time_point> stopped_;  // with the time at which each one resumes

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<Clock::time_point, PendingSignal> pending_;
  std::jthread sender_;
};

// Returns the workers of a job on this machine: members (beginning with the leader), newcomers, and then those
// `started` processes that the coordinator does not know yet. `status` is the result of Coordinator::status.
std::vector<FaultInjector::Worker> workers_here(const nlohmann::json& status, std::set<pid_t> started);

}  // namespace elinvar
