#include "tools/training/fault_injector.h"

#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "tensor/base/threads.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// glibc 2.36 declares its functions for these calls only in C.
int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
void send_signal(int process, int signal) { ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0); }

// Opens the process if it runs this program; null if the pid now belongs to another program.
std::shared_ptr<const int> open_process(pid_t pid) {
  const int descriptor = pidfd_open(pid);
  if (descriptor < 0) return nullptr;
  std::shared_ptr<const int> process(new int(descriptor), [](const int* at) {
    ::close(*at);
    delete at;
  });
  std::error_code error;
  const fs::path its = fs::read_symlink(fs::path("/proc") / std::to_string(pid) / "exe", error);
  return !error && its == fs::read_symlink("/proc/self/exe") ? process : nullptr;
}

}  // namespace

FaultInjector::FaultInjector(const Chaos& chaos, World world, int64_t recorded)
    : chaos_(chaos), world_(std::move(world)), newest_step_(recorded) {
  std::erase_if(chaos_.faults, [&](const Fault& fault) { return fault.step - 1 <= recorded || by_worker(fault); });
  sender_ = start_thread("fault injector", [this](const std::stop_token& stop) { send_due_signals(stop); });
}

FaultInjector::~FaultInjector() {
  sender_.request_stop();
  sender_.join();
  let_go_on();
}

void FaultInjector::let_go_on() {
  const std::lock_guard lock(mutex_);
  for (const auto& [time, pending] : pending_)
    if (pending.signal == SIGCONT) send_signal(*pending.process, SIGCONT);
  pending_.clear();  // otherwise a worker stopped from now on would never resume
}

void FaultInjector::note(const Moment& moment) { moments_.push_back(moment); }

void FaultInjector::act() {
  for (const Moment& moment : std::exchange(moments_, {})) {
    if (moment.what == Moment::What::step) {
      std::vector<Fault> now;
      std::erase_if(chaos_.faults, [&](const Fault& fault) {
        if (fault.step - 1 <= moment.number) now.push_back(fault);
        return fault.step - 1 <= moment.number;
      });
      for (const Fault& fault : now) inject(fault);
      if (moment.number <= newest_step_) continue;
      newest_step_ = moment.number;
    }
    if (!chaos_.random || !fault_happens_at(*chaos_.random, moment)) continue;
    std::erase_if(stopped_, [](const auto& entry) { return entry.second < Clock::now(); });
    const std::vector<Worker> workers = world_.workers();
    std::vector<Target> around;
    for (const Worker& worker : workers) {
      const bool doomed = gone_.contains(worker.pid) || stopped_.contains(worker.pid);
      around.push_back({.sound = worker.member && !doomed, .doomed = doomed});
    }
    if (std::none_of(around.begin(), around.end(), [](const Target& t) { return t.sound; })) continue;
    for (const DrawnFault& drawn : draw_faults(*chaos_.random, moment, around))
      inject(drawn, drawn.what == Fault::What::join ? Worker{} : workers[drawn.target], moment);
  }
}

void FaultInjector::inject(const Fault& fault) {
  const std::string what = name_of(fault.what);
  const Json step = {{"step", fault.step}};
  if (fault.whom == Fault::Whom::coordinator) {
    world_.event(what, {{"cause", "chaos"}, {"coordinator", true}, {"step", fault.step}});
    let_go_on();
    ::kill(::getpid(), SIGKILL);
  }
  if (fault.what == Fault::What::join) {
    tell(what, {}, step);
    return world_.start_worker();
  }
  if (fault.what == Fault::What::arrange) {
    Json fields = step;
    fields["entries"] = fault.entries;
    if (const std::string error = world_.arrange(fault.entries); !error.empty()) fields["missed"] = error;
    return tell(what, {}, fields);
  }
  bool any = false;
  for (const Worker& worker : world_.workers()) {
    const bool chosen = fault.whom == Fault::Whom::all || (fault.worker == 0 ? !any : worker.id == fault.worker);
    if (!chosen) continue;
    any = true;
    Json fields = step;
    if (fault.what == Fault::What::stall) fields["seconds"] = fault.seconds;
    tell(what, worker, fields);
    send(worker, fault.what == Fault::What::kill ? SIGKILL : fault.what == Fault::What::drain ? SIGTERM : SIGSTOP, 0);
    if (fault.what == Fault::What::stall) send(worker, SIGCONT, fault.seconds);
  }
  if (!any) world_.event(what, {{"cause", "chaos"}, {"worker", fault.worker}, {"missed", "it is not around"}});
}

void FaultInjector::inject(const DrawnFault& fault, const Worker& worker, const Moment& moment) {
  Json fields = {{"at", name_of(moment.what)}, {"number", moment.number}};
  if (fault.what != Fault::What::join) fields["after"] = fault.after;
  if (fault.what == Fault::What::stall) fields["seconds"] = fault.seconds;
  tell(name_of(fault.what), worker, fields);
  switch (fault.what) {
    case Fault::What::join:
      return world_.start_worker();
    case Fault::What::kill:
      gone_.insert(worker.pid);
      return send(worker, SIGKILL, fault.after);
    case Fault::What::drain:
      gone_.insert(worker.pid);
      return send(worker, SIGTERM, fault.after);
    case Fault::What::stall:
      stopped_[worker.pid] = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(fault.after + fault.seconds));
      send(worker, SIGSTOP, fault.after);
      return send(worker, SIGCONT, fault.after + fault.seconds);
    case Fault::What::drop:
    case Fault::What::flip:
    case Fault::What::arrange:
      return;  // never random
  }
}

void FaultInjector::tell(const std::string& what, const Worker& worker, Json fields) {
  fields["cause"] = "chaos";
  if (worker.pid != 0) fields.update({{"worker", worker.id}, {"pid", worker.pid}});
  world_.event(what, fields);
}

void FaultInjector::send(const Worker& worker, int signal, double after) {
  const std::shared_ptr<const int> process = open_process(worker.pid);
  if (!process) return;
  if (after <= 0) {
    send_signal(*process, signal);
    return;
  }
  const std::lock_guard lock(mutex_);
  pending_.emplace(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(after)),
                   PendingSignal{process, signal});
  changed_.notify_all();
}

void FaultInjector::send_due_signals(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (pending_.empty()) {
      changed_.wait(lock, stop, [&] { return !pending_.empty(); });
      continue;
    }
    const auto first = pending_.begin();
    if (Clock::now() < first->first) {
      changed_.wait_until(lock, stop, Clock::time_point(first->first), [&] { return pending_.begin() != first; });
      continue;
    }
    send_signal(*first->second.process, first->second.signal);
    pending_.erase(first);
  }
}

std::vector<FaultInjector::Worker> workers_here(const Json& status, std::set<pid_t> started) {
  utsname system{};
  uname(&system);
  std::vector<FaultInjector::Worker> workers;
  for (const Json& worker : status.at("workers")) {
    const Json& about = worker.at("about");
    if (about.at("environment").value("host", "") != system.nodename) continue;
    workers.push_back({.pid = about.at("pid").get<pid_t>(),
                       .id = worker.at("id").get<int>(),
                       .member = worker.at("state") == "member"});
    started.erase(workers.back().pid);
  }
  std::sort(workers.begin(), workers.end(), [](const auto& a, const auto& b) {
    return std::tuple(!a.member, a.id, a.pid) < std::tuple(!b.member, b.id, b.pid);
  });
  for (const pid_t pid : started) workers.push_back({.pid = pid});
  return workers;
}

}  // namespace elinvar
