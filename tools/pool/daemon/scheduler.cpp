#include "tools/pool/daemon/scheduler.h"

#include <utility>

#include "tensor/base/failure.h"

namespace elinvar::pool {

Scheduler::Scheduler(Store& store, World& world, std::vector<NamedSource> sources, SchedulerOptions options)
    : store_(store),
      options_(std::move(options)),
      inventory_(store, std::move(sources)),
      processes_(store, world),
      placement_(inventory_, backoff_, processes_),
      profiler_(store),
      planner_(store, options_, inventory_, placement_, processes_, profiler_),
      lifecycle_(store, world, options_, placement_, backoff_, processes_, profiler_, planner_),
      reconciler_(store, world, options_, inventory_, placement_, backoff_, processes_, planner_, lifecycle_) {}

void Scheduler::tick(double now) {
  if (now < now_) {  // the clock was set back: recorded times lie in the future
    backoff_.clear();
    inventory_.clock_was_set_back();
    profiler_.clock_was_set_back();
    planner_.clock_was_set_back();
    lifecycle_.clock_was_set_back();
    reconciler_.clock_was_set_back();
  }
  now_ = now;
  load();
  if (inventory_.refresh(now, planner_.wanted(), options_.grace)) planner_.request();
  processes_.poll(
      now, [&](Id slot) { return inventory_.find(slot) != nullptr; },
      [&](const ProcessRecord& process) { lifecycle_.process_ended(process, now); });
  for (JobRecord& job : lifecycle_.jobs()) isolated(job.id, [&] { lifecycle_.observe(job, now); });
  lifecycle_.drop_ended_jobs();
  planner_.plan_if_due(lifecycle_.jobs(), inventory_.all_sources_answered(), now);
  for (const bool giving : {true, false})  // jobs that give workers up come first
    for (JobRecord& job : lifecycle_.jobs())
      if (reconciler_.gives_up_workers(job.id) == giving) isolated(job.id, [&] { reconciler_.reconcile(job, now); });
  release(options_.idle);
}

void Scheduler::end(double now) {
  now_ = now;
  load();
  release(/*idle=*/-1);
  inventory_.want_nothing();
}

void Scheduler::load() {
  inventory_.load();
  processes_.load(now_, options_.grace);
  lifecycle_.load(now_);
}

void Scheduler::release(double idle) {
  if (inventory_.release(now_, idle, [&](Id slot) { return processes_.occupied(slot); })) planner_.want_nothing();
}

void Scheduler::isolated(Id job, const std::function<void()>& work) {
  try {
    work();
  } catch (const StoreDamage&) {
    throw;
  } catch (const Failure& failure) {
    if (std::exchange(trouble_[job], failure.what()) != failure.what())
      store_.log.add(now_, job, "trouble", failure.what());
  }
}

}  // namespace elinvar::pool
