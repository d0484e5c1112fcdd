#pragma once
// The process of a job's coordinator. It holds the run directory, starts workers on this machine, and carries out the
// coordinator's decisions (elastic/protocol/coordinator.h). run() and take_over() create it.
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "elastic/checkpoint/part_writer.h"
#include "elastic/protocol/coordinator.h"
#include "elastic/run/run_directory.h"
#include "elastic/session/chaos.h"
#include "tools/config/config.h"
#include "tools/training/control.h"
#include "tools/training/elastic_job.h"
#include "tools/training/gpu_assignment.h"
#include "tools/training/local_workers.h"
#include "tools/training/profiler.h"
#include "tools/training/prometheus.h"
#include "tools/training/report.h"
#include "tools/training/fault_injector.h"
#include "tools/web/server.h"

namespace elinvar {

class JobProcess final : public CoordinatorWorld {
 public:
  explicit JobProcess(const JobOptions& options);
  int run();  // runs until the job is over; returns the exit code or throws

  bool create(const Generation& generation) override;
  bool superseded() override;
  int64_t restart() override;
  int64_t newest_checkpoint(int64_t most) override;
  Recorded begin_history() override;
  std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override;
  void event(const std::string& name, const nlohmann::json& fields) override;
  void evict(PeerId peer) override;
  std::string refuse(const messages::Hello& hello) override;

 private:
  using Standing = HeldTerm::Standing;
  struct Loss {
    Seconds time;
    PeerId peer;
    std::string reason;
  };

  // Defined in run.cpp.
  static uint64_t random_id();
  static Seconds now();
  Transport::Clock::time_point rest_until() const;
  int missing_workers() const;
  void start_workers(int count);
  bool others_join() const { return command_.workers == 0 && !command_.takes_over; }
  void start_worker();
  void start_without_members();
  PeerId peer_of(pid_t local) const;
  void worker_lost(const Loss& loss);
  void check_ledger();
  bool still_in_charge();
  Standing standing_now();
  void serve_metrics();
  void publish_metrics();

  // Defined in job_end.cpp.
  std::string how_to_go_on();
  void restore_files();
  int step_down();
  void show_profile();
  void release(PeerId peer, const std::string& reason);
  void wait_for_workers();
  void turn_away(const Packet& newcomer);
  int finish();

  // Defined in job_messages.cpp.
  void send(PeerId peer, Message message);
  void flush();
  void note(const Moment& moment);
  bool imported() const;
  void forget(PeerId peer);
  void turned_away(const std::string& reason);
  void worker_failed(const Message& message, const messages::Failed& failed);
  std::string other_kind(const WorkerInfo& about) const;
  nlohmann::json build() const;
  std::string other_build(const messages::Hello& hello) const;
  std::vector<LedgerLine> first_updates() const;
  void refuse_first(PeerId worker, const std::string& reason);
  void receive(const Packet& packet);
  void receive_first(const Packet& packet, const messages::Hello& hello);
  void print_notices(const std::vector<std::string>& notices);
  void asked(const Message& message, const messages::Ask& ask);
  void take(const Message& message);
  void open_directory();
  void open(const WorkerInfo& about);
  void settle(const std::vector<CheckpointCommitter::Settled>& checkpoints);
  PartWriter& part_writer();
  void fault_injected(const Message& message, const messages::FaultInjected& fault);
  void state_sent(const Message& message, const messages::StateSent& told);
  void shown(const Message& message, const messages::Shown& look);
  void control(const Message& message, const messages::Ctl& asked);
  WorkerStarter starter();
  std::string arrange(const std::string& entries);
  nlohmann::json status() const;

  JobOptions command_;
  Config config_;
  std::string text_;  // the text of the configuration file, so that errors that workers find name its lines
  Chaos chaos_;
  std::filesystem::path path_;
  // Set at the first worker's hello, so that a run that cannot start leaves no files.
  std::optional<RunDirectory> directory_;
  std::optional<Report> report_;  // set together with the directory
  Coordinator::Records records_;
  uint64_t run_ = random_id();
  PeerId self_ = random_id();
  std::unique_ptr<Transport> transport_;
  LocalWorkers local_;
  GpuAssignment gpus_;
  std::deque<Loss> losses_;
  // The processes that have asked about the job and are connected, and all children of this process; 0: no child.
  std::map<PeerId, pid_t> pids_;
  int64_t asked_ = 0;
  std::optional<WorkerInfo> about_;  // the first worker
  std::set<std::string> notices_;    // printed already
  int64_t newcomers_ = 0;
  int starts_ = 0, started_ = 0, turned_away_ = 0;
  bool interrupted_ = false, until_ = false;
  Seconds beat_at_ = 0, began_ = now();
  std::optional<Seconds> missing_since_;
  std::optional<Coordinator> coordinator_;
  std::optional<FaultInjector> fault_injector_;
  std::optional<PartWriter> part_writer_;
  std::mutex metrics_mutex_;
  std::string metrics_ = prometheus_text(nlohmann::json::object());  // the page, which the server may read at any time
  Seconds published_ = 0;
  std::optional<WebServer> metrics_server_;
  std::optional<ProfileWindow> profile_;  // the window that is not shown yet
};

}  // namespace elinvar
