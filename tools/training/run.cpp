// The coordinator's process. It never trains: it starts workers, keeps the run directory, and shows a person the
// progress of the run (elastic/PROTOCOL.md). This file has its loop and carries out the coordinator's decisions.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "comm/endpoint.h"
#include "comm/zmq_transport.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/reason.h"
#include "tensor/base/threads.h"
#include "tensor/numerics.h"
#include "tools/cli/program_beside.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/environment.h"
#include "tools/training/interrupt.h"
#include "tools/training/job_process.h"
#include "tools/training/training_setup.h"

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Clock = Transport::Clock;

constexpr int kMostStarts = 10;
constexpr int kMostTurnedAway = 100;  // the limit of such events in events.jsonl: strangers must not fill the disk
constexpr Seconds kFirstWords = 3;    // for workers that are said to be alive to introduce themselves
constexpr Seconds kLastWords = 0.05;  // for messages that a process sent before its end and that are still in transit
constexpr Seconds kFirstWorker = 30;  // for the first worker to introduce itself if others should be alive
constexpr Seconds kMissing = 5;       // for workers to repeat unconfirmed facts after a takeover
constexpr Seconds kFresh = 0.5;       // the largest age of the numbers for Prometheus
constexpr Seconds kBeat = 1.2 * kHeartbeat;  // between two counts that show others that this process lives
// A count may come this much earlier if the process is awake anyway, as heartbeats cause.
constexpr Seconds kEarly = 0.25;

uint64_t JobProcess::random_id() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32 | device()) | 2;
}

Seconds JobProcess::now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

JobProcess::JobProcess(const JobOptions& command)
    : command_(command),
      config_(command.text.empty() ? read_config(command.config, command.overrides)
                                   : parse_config(command.text, command.config, command.overrides)),
      text_(command.text.empty() ? read_file(command.config) : command.text),
      chaos_(command.chaos.empty() ? Chaos() : parse_chaos(command.chaos)),
      path_(command.run_dir.empty() ? fs::path("runs") / config_.run.name : fs::path(command.run_dir)),
      gpus_(command.device, command.workers, gpus_here) {
  check_arrangement(config_, command.arrangement);
  check_offload(config_, {.inputs = command.offload.ends_with(",inputs")});
  if (!command.profile.empty()) profile_ = parse_profile_window(command.profile, 0);
  std::optional<JobKey> key;
  if (!command.key.empty()) key = JobKey::load(command.key);
  transport_ = make_zmq_transport({.listen = command.listen, .advertise = command.advertise, .key = key});
  if (!command.replay.empty()) (void)replayed_ledger(command.replay);
  // Workers find the job's endpoint in the run directory.
  const bool found_by_others = command.workers == 0;
  if (found_by_others || fs::exists(path_ / "ledger.jsonl") || fs::exists(path_ / "coordinators")) open_directory();
  if (profile_ && directory_) profile_ = parse_profile_window(command.profile, directory_->start().step);
  if (profile_ && command.until) profile_ = within(*profile_, *command.until);
}

int JobProcess::run() {
  pthread_setname_np(pthread_self(), "elinvar-coord");
  const Interrupt interrupt([this] { transport_->wake(); }, /*count_to=*/2);
  const EndOfChild child([this] { transport_->wake(); });
  serve_metrics();
  if (!directory_ || !directory_->members_alive()) start_workers(command_.workers);
  try {
    while (true) {
      const Arrival arrival = transport_->wait(rest_until());
      if (coordinator_) coordinator_->wait_ended(now());
      if (!still_in_charge()) return step_down();
      if (arrival.what == Arrival::What::message) receive(arrival.packet);
      if (arrival.what == Arrival::What::refused) turned_away(arrival.reason);
      if (arrival.what == Arrival::What::lost) losses_.push_back({now(), arrival.peer, arrival.reason});
      for (const LocalWorkers::Ended& ended : local_.ended())
        losses_.push_back({now(), peer_of(ended.pid), ended.text()});
      // Messages that the process sent before its end are handled first.
      while (!losses_.empty() && now() > losses_.front().time + kLastWords) {
        worker_lost(losses_.front());
        losses_.pop_front();
      }
      // Without this coordinator the workers would find another and continue, so a second interrupt ends them too.
      if (interrupt.requested() > 1) {
        local_.kill_all();
        fail("interrupted twice: it ends at once; {}", how_to_go_on());
      }
      if (interrupt.requested() && !interrupted_) {
        interrupted_ = true;
        if (!coordinator_) fail("interrupted before a worker was ready; {}", how_to_go_on());
        coordinator_->ask_stop("interrupted", now());
      }
      const int64_t made = directory_ ? directory_->facts().recorded() : 0;
      // A run that has made its last step is finished, and not stopped.
      if (coordinator_ && command_.until && !until_ && made >= *command_.until && made < about_->steps) {
        until_ = true;
        coordinator_->ask_stop(fmt::format("step {} is made", *command_.until), now());
      }
      if (!coordinator_ && directory_ && directory_->members_died()) start_without_members();
      const Seconds first_worker = others_join() ? command_.hold : kFirstWorker;
      if (!coordinator_ && local_.alive().empty() && now() > began_ + first_worker)
        fail("no worker has introduced itself within {:g} s{}", first_worker,
             others_join() ? fmt::format("; {} join {} brings one, and --hold sets how long to wait", program_name(),
                                         path_.string())
                           : "");
      if (const int missing = missing_workers(); missing > 0) start_workers(missing);
      if (coordinator_) {
        if (part_writer_)
          for (const auto& [step, part] : part_writer_->finished()) settle(directory_->checkpoints().saved(step, part));
        coordinator_->tick(now());
        check_ledger();
        flush();
        publish_metrics();
        if (coordinator_->job().ending) return finish();
      }
    }
  } catch (const std::exception& failure) {
    fault_injector_.reset();
    const Standing standing = standing_now();
    if (standing == Standing::superseded) return step_down();
    for (const auto& [peer, pid] : pids_)
      if (!coordinator_ || !coordinator_->job().workers.contains(peer)) release(peer, reason_of(failure));
    if (coordinator_) {  // it also knows the workers that an earlier coordinator admitted
      coordinator_->fail(reason_of(failure));
      flush();
    }
    wait_for_workers();
    if (coordinator_ && standing == Standing::held) {
      report_->fail(reason_of(failure));
      directory_->remove_unfinished();
    } else if (report_ && standing == Standing::held) {
      report_->keep_result();
    }
    throw;
  }
}

bool JobProcess::create(const Generation& generation) { return directory_->generations().create(generation); }

bool JobProcess::superseded() { return !directory_->term().newest(); }

// Called after a failure; if the directory cannot be read either, the first failure is the one to report.
HeldTerm::Standing JobProcess::standing_now() {
  try {
    return directory_ ? directory_->term().standing() : Standing::held;
  } catch (const std::exception&) {
    return Standing::held;
  }
}

int64_t JobProcess::restart() {
  directory_->choose_checkpoint();
  return directory_->start().step;
}

int64_t JobProcess::newest_checkpoint(int64_t most) { return directory_->checkpoints().newest(most); }

CoordinatorWorld::Recorded JobProcess::begin_history() {
  directory_->forget_what_is_ahead();
  const Ledger& ledger = directory_->facts().ledger();
  return {.scaling_state = directory_->start().scaling_state,
          .changes = batch_changes(ledger, config_.adaptive() ? config_.run.batch_size : 0),
          .steps = ledger.known()};
}

std::optional<int64_t> JobProcess::facts(const std::vector<StepFacts>& steps) {
  if (superseded()) return std::nullopt;
  const int64_t before = directory_->facts().recorded(), on_file = directory_->facts().record(steps);
  if (superseded()) return std::nullopt;
  if (directory_->facts().recorded() > before) starts_ = std::min(starts_, 1);  // those workers did live long enough
  for (int64_t made = before + 1; made <= directory_->facts().recorded(); ++made) {
    note({Moment::What::step, made});
    if (due(made, config_.run.checkpoint_every)) note({Moment::What::checkpoint, made});
  }
  settle(directory_->checkpoints().commit());
  report_->steps(steps, now());
  // A member of a step has already written its profile of earlier steps.
  if (profile_ && directory_->facts().recorded() > profile_->last) show_profile();
  return on_file;
}

void JobProcess::event(const std::string& name, const Json& fields) {
  if ((name == "refused" || name == "turned_away") && ++turned_away_ > kMostTurnedAway) return;
  report_->event(name, fields, now());
  if (name == "hello") note({Moment::What::newcomer, ++newcomers_});
  if (name == "fence" || name == "generation") note({Moment::What::generation, fields.at("number").get<int64_t>()});
  if (name == "generation") note({Moment::What::step, directory_->facts().recorded()});
}

// Kills the worker's process if it is on this machine: a stopped or hung process would keep its memory.
void JobProcess::evict(PeerId peer) {
  const auto pid = pids_.find(peer);
  if (pid != pids_.end() && local_.alive().contains(pid->second)) ::kill(pid->second, SIGKILL);
}

std::string JobProcess::refuse(const messages::Hello& hello) {
  const WorkerInfo& about = hello.about;
  if (about.config != about_->config) return "its configuration is another one";
  if (about.data != about_->data) return "its data are others";
  if (about.numerics_version != kNumericsVersion) return "its numerics are of another version";
  if (const std::string reason = other_kind(about); !reason.empty()) return reason;
  if (about.protocol != kProtocolVersion) return "it speaks another version of the protocol";
  return other_build(hello);
}

// Returns the time until which nothing needs attention if no message arrives. A message wakes the loop earlier.
Clock::time_point JobProcess::rest_until() const {
  Seconds until = coordinator_ ? coordinator_->tick_by() : now() + kFresh;
  if (directory_) until = std::min(until, beat_at_);
  if (!losses_.empty() || fault_injector_) until = std::min(until, now() + kLastWords / 2);
  if (metrics_server_) until = std::min(until, now() + kFresh);
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(until)));
}

// Returns how many workers the first generation can never get: they were said to be alive but left, or they died
// before it.
int JobProcess::missing_workers() const {
  if (command_.workers == 0) return 0;
  if (!coordinator_)
    return local_.alive().empty() && starts_ == 0 && now() > began_ + kFirstWords ? command_.workers : 0;
  if (coordinator_->job().phase != Coordinator::Phase::starting) return 0;
  auto there = static_cast<int>(coordinator_->job().workers.size());
  for (const pid_t pid : local_.alive())
    there += !coordinator_->job().workers.contains(peer_of(pid));  // not connected yet
  return std::max(0, command_.workers - there);
}

void JobProcess::start_workers(int count) {
  if (++starts_ > kMostStarts) fail("no worker lives long enough to begin");
  for (int i = 0; i < count; ++i) start_worker();
}

void JobProcess::start_worker() {
  // The new worker listens as the job does, but at an endpoint of its own.
  ++started_;
  Endpoint listen = parse_endpoint(command_.listen);
  if (listen.scheme == "tcp") listen.port = 0;
  else listen.place += fmt::format(".{}.{}", getpid(), started_);
  check(command_.start_worker != nullptr, "this process cannot start workers: JobOptions::start_worker is empty");
  const pid_t worker = command_.start_worker({.endpoint = transport_->endpoint(),
                                              .listen = to_string(listen),
                                              .advertise = command_.advertise,
                                              .key = command_.key,
                                              .local = true,
                                              .device = gpus_.next(local_.alive()),
                                              .threads = command_.threads,
                                              .isa = command_.isa,
                                              .offload = command_.offload,
                                              .profile = profile_ ? profile_->text() : ""});
  local_.add(worker);
  gpus_.given_to(worker);
}

// Starts new workers, because those that should have continued have died since this process looked.
void JobProcess::start_without_members() {
  say(stderr, "they are gone; {}\n", directory_->start().notices.empty() ? "" : directory_->start().notices.back());
  start_workers(command_.workers);
}

PeerId JobProcess::peer_of(pid_t local) const {
  for (const auto& [peer, pid] : pids_)
    if (pid == local) return peer;
  return 0;
}

void JobProcess::worker_lost(const Loss& loss) {
  forget(loss.peer);
  if (coordinator_) coordinator_->lost(loss.peer, loss.reason, now());
  // A coordinator that has taken over has started none; the workers that it waits for are others' children.
  else if (starts_ > 0 && local_.alive().empty() && !others_join()) fail("no worker could start: {}", loss.reason);
}

// Workers repeat to a new coordinator all facts that were not confirmed. Steps that none of them repeats had been
// recorded, so if the ledger lacks them it was damaged.
void JobProcess::check_ledger() {
  const std::optional<int64_t> missing = command_.takes_over ? directory_->facts().missing_step() : std::nullopt;
  if (!missing) missing_since_.reset();
  else if (!missing_since_) missing_since_ = now();
  else if (now() > *missing_since_ + kMissing)
    fail("{} ends before step {}, which an earlier coordinator had recorded: it was removed or cut off",
         (path_ / "ledger.jsonl").string(), *missing);
}

// Increments the beat so that no other process takes over. Returns false if one has.
bool JobProcess::still_in_charge() {
  if (!directory_ || now() < beat_at_ - kEarly) return true;
  beat_at_ = now() + kBeat;
  if (!directory_->term().newest()) return false;
  directory_->term().beat();
  restore_files();
  return true;
}

// The run continues if its metrics cannot be served: after a takeover the port may belong to another process.
void JobProcess::serve_metrics() {
  if (!command_.metrics_port) return;
  try {
    metrics_server_.emplace(command_.metrics_address, *command_.metrics_port,
                            [this](const WebRequest& request) -> std::optional<WebPage> {
                              if (request.path != "/metrics") return std::nullopt;
                              const std::lock_guard lock(metrics_mutex_);
                              return WebPage{"text/plain; version=0.0.4; charset=utf-8", metrics_};
                            });
  } catch (const Failure& failure) {
    if (!command_.takes_over) throw;
    say(stderr, "{}: {}; the run goes on without it\n", program_name(), failure.what());
    return;
  }
  say(stdout, "metrics: {}/metrics\n", metrics_server_->url());
}

void JobProcess::publish_metrics() {
  if (!metrics_server_ || now() < published_ + kFresh) return;
  published_ = now();
  std::string text = prometheus_text(status());
  const std::lock_guard lock(metrics_mutex_);
  metrics_ = std::move(text);
}

namespace {

// A run goes on with its own number of virtual ranks if its configuration does not choose one: the default was 1 in
// older versions of this program.
void keep_virtual_ranks(JobOptions& options) {
  if (!options.resume) return;
  const Config config = options.text.empty() ? read_config(options.config, options.overrides)
                                             : parse_config(options.text, options.config, options.overrides);
  const fs::path begun =
      (options.run_dir.empty() ? fs::path("runs") / config.run.name : fs::path(options.run_dir)) / "config.toml";
  if (config.chooses_virtual_ranks || !fs::exists(begun)) return;
  options.overrides.push_back(fmt::format("run.virtual_ranks={}", read_config(begun).run.virtual_ranks));
}

}  // namespace

int run(const JobOptions& given) {
  JobOptions options = given;
  keep_virtual_ranks(options);
  if (options.threads == 0) options.threads = std::max(1, usable_threads() / std::max(1, options.workers));
  return JobProcess(options).run();
}

}  // namespace elinvar
