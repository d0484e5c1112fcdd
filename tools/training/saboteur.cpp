#include "tools/training/saboteur.h"

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

// glibc 2.36 declares its functions for these calls in C alone.
int pidfd_open(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }
void send_signal(int process, int signal) { ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0); }

// The process, if it is one of this program: a number may have become another's.
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

Saboteur::Saboteur(const Chaos& chaos, World world, int64_t recorded) : chaos_(chaos), world_(std::move(world)) {
  std::erase_if(chaos_.faults, [&](const Fault& fault) { return fault.step - 1 <= recorded || by_worker(fault.what); });
  shooter_ = start_thread("saboteur", [this](const std::stop_token& stop) { wait_and_shoot(stop); });
}

Saboteur::~Saboteur() {
  shooter_.request_stop();
  shooter_.join();
  let_go_on();
}

void Saboteur::let_go_on() {
  const std::lock_guard lock(mutex_);
  for (const auto& [time, shot] : shots_)
    if (shot.signal == SIGCONT) send_signal(*shot.process, SIGCONT);
  shots_.clear();  // else one that is to be stopped now would never go on
}

void Saboteur::note(const Moment& moment) { moments_.push_back(moment); }

void Saboteur::act() {
  for (const Moment& moment : std::exchange(moments_, {})) {
    if (moment.what == Moment::What::step) {
      std::vector<Fault> now;
      std::erase_if(chaos_.faults, [&](const Fault& fault) {
        if (fault.step - 1 <= moment.number) now.push_back(fault);
        return fault.step - 1 <= moment.number;
      });
      for (const Fault& fault : now) strike(fault);
    }
    if (!chaos_.random || !strikes_at(*chaos_.random, moment)) continue;
    std::erase_if(stopped_, [](const auto& entry) { return entry.second < Clock::now(); });
    const std::vector<Worker> workers = world_.workers();
    std::vector<Target> around;
    for (const Worker& worker : workers) {
      const bool doomed = gone_.contains(worker.pid) || stopped_.contains(worker.pid);
      around.push_back({.sound = worker.member && !doomed, .doomed = doomed});
    }
    if (std::none_of(around.begin(), around.end(), [](const Target& t) { return t.sound; })) continue;
    for (const Strike& s : strikes_of(*chaos_.random, moment, around))
      strike(s, s.what == Fault::What::join ? Worker{} : workers[s.target], moment);
  }
}

void Saboteur::strike(const Fault& fault) {
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
  bool any = false;
  for (const Worker& worker : world_.workers()) {
    const bool chosen = fault.whom == Fault::Whom::all || (fault.worker == 0 ? !any : worker.id == fault.worker);
    if (!chosen) continue;
    any = true;
    Json fields = step;
    if (fault.what == Fault::What::stall) fields["seconds"] = fault.seconds;
    tell(what, worker, fields);
    shoot(worker, fault.what == Fault::What::kill ? SIGKILL : fault.what == Fault::What::drain ? SIGTERM : SIGSTOP, 0);
    if (fault.what == Fault::What::stall) shoot(worker, SIGCONT, fault.seconds);
  }
  if (!any) world_.event(what, {{"cause", "chaos"}, {"worker", fault.worker}, {"missed", "it is not around"}});
}

void Saboteur::strike(const Strike& strike, const Worker& worker, const Moment& moment) {
  Json fields = {{"at", name_of(moment.what)}, {"number", moment.number}};
  if (strike.what != Fault::What::join) fields["after"] = strike.after;
  if (strike.what == Fault::What::stall) fields["seconds"] = strike.seconds;
  tell(name_of(strike.what), worker, fields);
  switch (strike.what) {
    case Fault::What::join:
      return world_.start_worker();
    case Fault::What::kill:
      gone_.insert(worker.pid);
      return shoot(worker, SIGKILL, strike.after);
    case Fault::What::drain:
      gone_.insert(worker.pid);
      return shoot(worker, SIGTERM, strike.after);
    case Fault::What::stall:
      stopped_[worker.pid] = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                std::chrono::duration<double>(strike.after + strike.seconds));
      shoot(worker, SIGSTOP, strike.after);
      return shoot(worker, SIGCONT, strike.after + strike.seconds);
    case Fault::What::drop:
    case Fault::What::flip:
      return;  // never random
  }
}

void Saboteur::tell(const std::string& what, const Worker& worker, Json fields) {
  fields["cause"] = "chaos";
  if (worker.pid != 0) fields.update({{"worker", worker.id}, {"pid", worker.pid}});
  world_.event(what, fields);
}

void Saboteur::shoot(const Worker& worker, int signal, double after) {
  const std::shared_ptr<const int> process = open_process(worker.pid);
  if (!process) return;
  if (after <= 0) {
    send_signal(*process, signal);
    return;
  }
  const std::lock_guard lock(mutex_);
  shots_.emplace(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(after)),
                 Shot{process, signal});
  changed_.notify_all();
}

void Saboteur::wait_and_shoot(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (shots_.empty()) {
      changed_.wait(lock, stop, [&] { return !shots_.empty(); });
      continue;
    }
    const auto first = shots_.begin();
    if (Clock::now() < first->first) {
      changed_.wait_until(lock, stop, Clock::time_point(first->first), [&] { return shots_.begin() != first; });
      continue;
    }
    send_signal(*first->second.process, first->second.signal);
    shots_.erase(first);
  }
}

std::vector<Saboteur::Worker> workers_here(const Json& status, std::set<pid_t> started) {
  utsname system{};
  uname(&system);
  std::vector<Saboteur::Worker> workers;
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
