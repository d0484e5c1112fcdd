#include "tools/pool/daemon/process_table.h"

#include <algorithm>

#include "tools/pool/daemon/exit_report.h"

namespace elinvar::pool {

namespace fs = std::filesystem;

void ProcessTable::load(double now, double grace) {
  processes_.clear();
  for (ProcessRecord& p : store_.processes.present()) {
    if (p.leaving > 0 && (p.leaving > now || p.leave_by > now + grace)) {
      p.leaving = std::min(p.leaving, now);
      p.leave_by = std::min(p.leave_by, now + grace);
      store_.processes.save(p);
    }
    processes_.emplace(p.id, std::move(p));
  }
}

void ProcessTable::poll(double now, const std::function<bool(Id)>& exists,
                        const std::function<void(const ProcessRecord&)>& ended) {
  for (auto& [id, p] : processes_) {
    ProcessState state{.running = false, .code = kUnknownExit};
    if (p.handle.empty()) {  // the daemon was killed while starting it
      const fs::path directory = store_.job_directory(p.job);
      p.handle =
          world_.find(p.coordinator ? std::vector<std::string>{"run", directory / "config.toml"}
                                    : std::vector<std::string>{"--run-dir", directory / "run", "--name", p.name()});
      if (!p.handle.empty()) store_.processes.save(p);
    }
    if (!p.handle.empty()) state = world_.state(p.handle);
    if (!state.running) {
      p.ended = now;
      p.code = state.code;
      store_.transaction([&] { store_.processes.save(p); });
      ended(p);
    } else if (now >= p.leave_by || !std::all_of(p.slots.begin(), p.slots.end(), exists)) {
      world_.kill(p.handle);
    }
  }
  std::erase_if(processes_, [](const auto& process) { return process.second.ended > 0; });
}

std::string ProcessTable::launch(ProcessRecord process, const Command& command, double now) {
  store_.transaction([&] { process.id = store_.processes.add(process); });
  std::string trouble;
  try {
    process.handle = world_.start(command(process), log_of(process));
  } catch (const std::exception& error) {
    trouble = error.what();
    process.ended = now;
    process.code = kUnknownExit;
  }
  store_.transaction([&] { store_.processes.save(process); });
  if (process.ended == 0) processes_.emplace(process.id, process);
  return trouble;
}

void ProcessTable::leave(ProcessRecord& process, double now, double by) {
  if (process.leaving == 0) process.leaving = now;
  process.leave_by = std::min(process.leave_by, by);
  store_.processes.save(process);
}

void ProcessTable::stop(Id job, double now, double by) {
  for (ProcessRecord* p : all_of(job)) {
    p->leaving = now;
    p->leave_by = by;
    store_.processes.save(*p);
  }
}

void ProcessTable::registered(ProcessRecord& worker) {
  worker.registered = true;
  store_.processes.save(worker);
}

std::vector<ProcessRecord*> ProcessTable::workers_of(Id job) {
  std::vector<ProcessRecord*> workers;
  for (auto& [id, p] : processes_)
    if (p.job == job && !p.coordinator && p.ended == 0) workers.push_back(&p);
  return workers;
}

std::vector<const ProcessRecord*> ProcessTable::workers_of(Id job) const {
  std::vector<const ProcessRecord*> workers;
  for (const auto& [id, p] : processes_)
    if (p.job == job && !p.coordinator && p.ended == 0) workers.push_back(&p);
  return workers;
}

ProcessRecord* ProcessTable::coordinator_of(Id job) {
  for (auto& [id, p] : processes_)
    if (p.job == job && p.coordinator && p.ended == 0) return &p;
  return nullptr;
}

std::vector<ProcessRecord*> ProcessTable::all_of(Id job) {
  std::vector<ProcessRecord*> all;
  for (auto& [id, p] : processes_)
    if (p.job == job && p.ended == 0) all.push_back(&p);
  return all;
}

bool ProcessTable::occupied(Id slot) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    const ProcessRecord& p = process.second;
    return p.ended == 0 && std::find(p.slots.begin(), p.slots.end(), slot) != p.slots.end();
  });
}

bool ProcessTable::has_registered_worker(const std::function<bool(Id)>& on) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& process) {
    const ProcessRecord& p = process.second;
    return p.ended == 0 && p.registered && !p.slots.empty() && on(p.slots.front());
  });
}

fs::path ProcessTable::log_of(const ProcessRecord& p) const {
  return store_.job_directory(p.job) / (p.coordinator ? "coordinator.log" : p.name() + ".log");
}

}  // namespace elinvar::pool
