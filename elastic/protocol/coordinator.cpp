#include "elastic/protocol/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

using Json = nlohmann::json;
using Phase = JobState::Phase;
using State = Worker::State;

Coordinator::Coordinator(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step,
                         const Records& records, Seconds now)
    : job_(options, world, first_step),
      scaling_(job_),
      groups_(job_),
      facts_(job_),
      last_checkpoint_(job_, facts_),
      fencing_(job_),
      trials_(job_),
      admission_(job_, now),
      transfers_(job_, facts_, fencing_),
      planner_(job_, scaling_, groups_, facts_, now),
      liveness_(job_, now) {
  scaling_.take_over(records);
  if (!records.newest) return;
  if (records.members_alive) job_.sharded = job_.sharded || records.newest->sharding;
  if (records.members_alive) job_.automatic = job_.automatic && records.newest->automatic;
  job_.number = records.newest->number;
  job_.next_id = records.newest->next_id;
  if (!records.members_alive) return;
  job_.current = records.newest;
  job_.phase = Phase::gathering;
  for (const GenerationMember& m : records.newest->members) job_.call(m.peer, m.endpoint);
  if (!records.before) return;
  for (const GenerationMember& m : records.before->members) job_.call(m.peer, m.endpoint);
}

std::vector<Action> Coordinator::take_actions() { return std::exchange(job_.actions, {}); }

void Coordinator::receive(const Message& m, Seconds now) {
  if (job_.phase == Phase::ended) return;
  check_possible(m);
  if (const auto* introduction = m.as<messages::Hello>()) return hello(m, *introduction, now);
  const auto found = job_.workers.find(m.sender);
  if (found == job_.workers.end()) return handle_stranger(m);
  Worker& worker = found->second;
  worker.seen = now;
  if (const auto* told = m.as<messages::Facts>()) return facts(m, told->told, now);
  if (const auto* alive = m.as<messages::Alive>()) {
    if (alive->answer) job_.send(worker.peer, messages::Heard{});
    worker.work = alive->work;
    worker.resident = alive->resident;
    worker.gpu_peak = alive->gpu_peak;
    // The first measurement is kept: later ones differ too little to cut the stages anew.
    if (job_.segments.seconds.empty()) job_.segments.seconds = alive->segment_seconds;
    if (!alive->told.steps.empty()) return facts(m, alive->told, now);
  }
  progress(worker, m, now);
  if (job_.phase != Phase::ended && job_.workers.contains(m.sender)) handle(worker, m, now);
}

// Generations, fences and ids may be of an earlier coordinator, which this one did not hear of, but are counted one by
// one. Numbers far above those known here would leave none for the job.
void Coordinator::check_possible(const Message& m) const {
  constexpr int kMostAhead = 1'000'000;
  const auto near = [](const char* what, int64_t found, int64_t known) {
    check(found <= known + kMostAhead, "expected {} up to {}, got {}", what, known + kMostAhead, found);
  };
  near("a generation", m.generation, job_.number);
  if (const auto* hello = m.as<messages::Hello>()) {
    near("a promised generation", hello->promised, job_.number);
    near("a worker's id", hello->id, job_.next_id);
  }
  if (const auto* fenced = m.as<messages::Fenced>()) near("a promised generation", fenced->promised, job_.number);
  if (!job_.adaptive()) check(m.step <= job_.steps + 1, "expected a step up to {}, got {}", job_.steps + 1, m.step);
}

void Coordinator::handle(Worker& worker, const Message& m, Seconds now) {
  visit(
      m.payload,
      [&](const messages::Ready& told) {
        worker.completed = m.step;  // may decrease: the worker was told to restore an earlier state
        if (job_.phase == Phase::starting && told.attempt == 0) worker.about.zero = job_.zero();
        // A worker that restored the first state is ready only for the first generation; later it must catch
        // up.
        if (job_.phase == Phase::starting ? told.attempt == 0 : transfers_.caught_up(worker, told.attempt))
          ready(worker, now);
      },
      [&](const messages::Blind&) {
        worker.blind = true;
        if (job_.phase == Phase::starting) start(now);
      },
      [&](const messages::Warm&) {
        worker.warm = true;
        serve_learners();
      },
      [&](const messages::Missed& told) {
        transfers_.missed(told.peer);
        serve_learners();
      },
      [&](const messages::Audit& told) { audit(m, told.evidence, now); },
      [&](const messages::GroupUsed& told) { groups_.used(m, told); },
      [&](const messages::GroupMissing& told) { groups_.missing(worker, told); },
      [&](const messages::GroupFailed& told) { fence_if(groups_.failed(worker, m, told), now); },
      [&](const messages::Fenced& answer) {
        if (const Fencing::Answer what = fencing_.answered(worker, m, answer); what == Fencing::Answer::of_another)
          fence(fencing_.reason(), now);
        else if (what == Fencing::Answer::counts) conclude_fence(now);
      },
      [&](const messages::Suspect& told) {
        if (job_.workers.contains(told.peer)) remove_worker(told.peer, told.reason, now);
      },
      [&](const messages::Drain&) { drain(worker, now); },
      [&](const messages::Failed& told) {
        job_.end("failed", fmt::format("worker {}: {}", worker.id, told.reason));
      });  // workers do not send the other kinds to a coordinator
}

// Handles a message of a worker that was evicted, or that has not introduced itself to this coordinator.
void Coordinator::handle_stranger(const Message& m) {
  const auto* alive = m.as<messages::Alive>();
  const auto* told = m.as<messages::Facts>();
  const FactsBatch* late = told ? &told->told : alive && !alive->told.steps.empty() ? &alive->told : nullptr;
  if (late && of_this_history(m)) (void)facts_.write(decode_facts(*late));
  if (alive) admission_.turn_away(m.sender);
}

void Coordinator::hello(const Message& m, const messages::Hello& hello, Seconds now) {
  using Arrival = Admission::Arrival;
  const Arrival arrival = admission_.hello(m, hello, now);
  if (arrival == Arrival::refused) return;
  transfers_.introduced(m.sender);
  if (arrival == Arrival::starter) return start(now);
  if (arrival == Arrival::newcomer) return serve_learners();
  if (arrival == Arrival::caught_up) {
    Worker& worker = job_.workers.at(m.sender);
    if (transfers_.caught_up(worker, hello.attempt)) ready(worker, now);
  }
  if (arrival != Arrival::member) return;
  if (fencing_.asked(m.sender) && job_.phase == Phase::fencing) return fencing_.ask(m.sender);
  if (job_.phase == Phase::fencing || job_.phase == Phase::holding) return fence("a member has come back", now);
  if (job_.proposal && job_.phase == Phase::running && m.generation == job_.proposal->number) switched(now);
  tick(now);
}

void Coordinator::progress(Worker& worker, const Message& m, Seconds now) {
  worker.generation = std::max(worker.generation, m.generation);
  worker.completed = std::max(worker.completed, m.step);
  if (const auto* entered = m.as<messages::Entered>(); entered && entered->end && of_this_history(m))
    job_.steps = *entered->end;
  if (job_.proposal && job_.phase == Phase::running && m.generation == job_.proposal->number) switched(now);
  release_leavers();
}

void Coordinator::facts(const Message& m, const FactsBatch& told, Seconds now) {
  const std::vector<StepFacts> steps = decode_facts(told);
  for (const StepFacts& facts : steps)
    if (facts.end && of_this_history(m)) job_.steps = *facts.end;
  progress(job_.workers.at(m.sender), m, now);
  if (!of_this_history(m) || !facts_.take(steps, now)) return;
  for (const StepFacts& facts : steps) {
    // A member of a later generation may report a step of an earlier one.
    if (!facts.update || !job_.current || facts.update->generation != job_.current->number) continue;
    learn_speeds(job_.current->members, facts.update->seconds, job_.workers);
    scaling_.measure(facts);
  }
  release_leavers();
  if (last_checkpoint_.whole()) job_.end("finished", "");
  else propose(now);
}

void Coordinator::ready(Worker& worker, Seconds now) {
  worker.state = State::ready;
  job_.world.event("ready", {{"peer", worker.peer}, {"step", worker.completed}});
  if (job_.phase == Phase::starting) start(now);
  else if (job_.phase == Phase::holding) fence("a worker has come", now);
  else propose(now);
}

void Coordinator::drain(Worker& worker, Seconds now) {
  worker.draining = true;
  job_.world.event("drain", {{"worker", worker.id}, {"peer", worker.peer}});
  if (admission_.may_leave(worker)) dismiss(worker.peer);
  else propose(now);
}

void Coordinator::audit(const Message& m, const Evidence& evidence, Seconds now) {
  const auto consequence = trials_.examine(m, evidence, facts_.agreed_state());
  if (!consequence) return;
  for (const PeerId peer : consequence->guilty) evict(peer, consequence->reason, now, /*guilty=*/true);
  if (consequence->fence) fence(consequence->reason, now);
}

void Coordinator::lost(PeerId peer, const std::string& reason, Seconds now) {
  if (job_.phase != Phase::ended && job_.workers.contains(peer)) remove_worker(peer, reason, now);
}

void Coordinator::evict(PeerId peer, const std::string& reason, Seconds now, bool guilty) {
  if (job_.phase == Phase::ended || !job_.workers.contains(peer)) return;
  admission_.expel(peer, reason, guilty);
  remove_worker(peer, reason, now);
}

void Coordinator::remove_worker(PeerId peer, const std::string& reason, Seconds now) {
  const Worker worker = admission_.remove(peer, reason);
  fencing_.forget(peer);
  transfers_.stop(peer);
  transfers_.forget(peer);
  if (job_.phase == Phase::fencing) {
    groups_.excuse_failure();
    return conclude_fence(now);
  }
  if (job_.phase == Phase::running && job_.concerned(worker))
    return fence("lost worker " + std::to_string(worker.id) + ": " + reason, now);
  if (job_.phase == Phase::holding) return conclude_fence(now);
  if (job_.phase != Phase::starting) return;
  if (job_.workers.empty()) job_.end("failed", "no worker is left: " + reason);
  else start(now);
}

void Coordinator::dismiss(PeerId peer) {
  const Worker worker = admission_.dismiss(peer);
  fencing_.forget(peer);
  if (worker.state != State::leaving) transfers_.stop(peer);
  transfers_.forget(peer);
}

void Coordinator::fence(const std::string& reason, Seconds now) {
  fencing_.begin(reason, now);
  conclude_fence(now);
}

// Those who were too late for the first generation may hold the state as they did before it.
void Coordinator::start(Seconds now) {
  const FenceReason reason = planner_.start(now);
  if (job_.phase == Phase::running) turn_away_misfits();
  fence_if(reason, now);
}

void Coordinator::fence_if(const FenceReason& reason, Seconds now) {
  if (reason) fence(*reason, now);
}

void Coordinator::conclude_fence(Seconds now) {
  if (!fencing_.complete()) return;
  groups_.fence_answered();
  Recovery recovery = fencing_.recovery();
  if (recovery.step < 0) return job_.end("failed", "no worker is left; resume the run");
  if (planner_.lost_state(recovery) || trials_.restores(recovery)) return restore_checkpoint(now);
  fencing_.return_learners(recovery.members);
  const bool saves = !planner_.stop_reason().empty();  // that alone: any number of members can save
  if (static_cast<int>(recovery.members.size()) < job_.options.min_workers && !saves) {
    if (fencing_.any_came()) return fence("a worker has come", now);
    job_.held = recovery.held_with().value_or(job_.zero());
    fencing_.hold(recovery.members.size());
  } else {
    trials_.choose_witnesses(recovery);
    if (!fencing_.any_at_work()) scaling_.begin_history(job_.number);
    const FenceReason again = planner_.recover(std::move(recovery), trials_.trial(), fencing_.reason(), now);
    if (again) return fence(*again, now);
    if (job_.phase == Phase::ended) return;
    trials_.begun();
  }
  turn_away_misfits();
  transfers_.restart();
  serve_learners();
}

void Coordinator::propose(Seconds now) {
  const int zero = job_.zero();
  const FenceReason reason = planner_.propose(now);
  if (form_of(zero) != form_of(job_.zero())) turn_away_misfits();
  fence_if(reason, now);
}

// A trailer showed that all members held the proposal, and a member has reported it.
void Coordinator::switched(Seconds now) {
  planner_.switch_to_proposal(now);
  transfers_.restart_from_leavers();
  serve_learners();
  release_leavers();
  propose(now);  // changes that had to wait for this one
}

void Coordinator::serve_learners() {
  for (const PeerId peer : transfers_.serve()) dismiss(peer);
}

void Coordinator::release_leavers() {
  for (const PeerId peer : planner_.released()) dismiss(peer);
}

void Coordinator::turn_away_misfits() {
  for (const PeerId peer : admission_.turn_away_misfits()) {
    fencing_.forget(peer);
    transfers_.forget(peer);
  }
}

void Coordinator::wait_ended(Seconds now) { liveness_.wait_ended(now); }

void Coordinator::tick(Seconds now) {
  if (job_.phase == Phase::ended) return;
  liveness_.forgive_absence(now);
  decide(now);
  liveness_.rest(now, /*soon=*/job_.phase != Phase::running || last_checkpoint_.to_be_retried());
}

void Coordinator::decide(Seconds now) {
  for (const Hung& silent : liveness_.silent(now)) evict(silent.peer, silent.reason, now);
  if (liveness_.deserted() || job_.phase == Phase::ended) return;
  for (const Hung& hung : liveness_.hung(now)) evict(hung.peer, hung.reason, now);
  find_what_is_lost(now);
  if (job_.phase == Phase::gathering) return gather(now);
  if (job_.phase == Phase::starting) start(now);
  if (job_.phase == Phase::running) {
    serve_learners();
    propose(now);
    fence_if(last_checkpoint_.retry(now), now);
  }
}

void Coordinator::find_what_is_lost(Seconds now) {
  fencing_.repeat(now);
  if (job_.phase != Phase::running && job_.phase != Phase::holding) return;
  const Seconds patience = liveness_.patience();
  if (transfers_.restart_stuck(patience)) liveness_.lost_message();
  serve_learners();
  fence_if(liveness_.stuck(patience, now), now);
}

// Handles a new coordinator's wait for the members of an old generation. If none of them comes, the run continues from
// its newest checkpoint.
void Coordinator::gather(Seconds now) {
  if (!admission_.gathered(now)) return;
  const bool any = std::any_of(job_.workers.begin(), job_.workers.end(),
                               [](const auto& entry) { return entry.second.state == State::member; });
  if (any) return fence("another coordinator", now);
  if (job_.workers.empty()) return job_.end("failed", "no worker is left; resume the run");
  begin_again(job_.options.initial_workers, /*others_come=*/true, now);
}

// Begins with the newest checkpoint, which all workers restore.
void Coordinator::begin_again(int starters, bool others_come, Seconds now) {
  planner_.wait_for_starters(starters, others_come, now);
  job_.first_step = job_.world.restart();
  scaling_.begin_history(job_.number + 1);
  last_checkpoint_.restart();
  for (const auto& [peer, w] : job_.workers) transfers_.introduced(peer);
  admission_.restore_all();
}

// Restores a checkpoint (ZeRO): no worker has some part of the state, or an audit could not tell which one is right.
void Coordinator::restore_checkpoint(Seconds now) {
  std::vector<PeerId> leaving;
  for (auto& [peer, w] : job_.workers) {
    if (w.state == State::leaving) leaving.push_back(peer);
    w.state = State::joining;
    w.work = {};
  }
  for (const PeerId peer : leaving) dismiss(peer);
  trials_.begun();
  begin_again(static_cast<int>(job_.workers.size()), /*others_come=*/false, now);
  job_.world.event("state_lost", {{"reason", fencing_.reason()}, {"restored", job_.first_step}});
}

void Coordinator::checkpoint(int64_t step, const std::string& failure, Seconds now) {
  if (!failure.empty()) return last_checkpoint_.failed(step, failure, now);
  last_checkpoint_.committed(step);
  if (job_.phase == Phase::ended) return;
  if (last_checkpoint_.whole()) job_.end("finished", "");
  else if (last_checkpoint_.stops_at(step)) job_.end("stopped", planner_.stop_reason());
  tick(now);
}

std::string Coordinator::drain(int id, Seconds now) {
  for (auto& [peer, w] : job_.workers) {
    if (w.id != id || id == 0) continue;
    drain(w, now);
    return "";
  }
  return fmt::format("there is no worker {}", id);
}

void Coordinator::ask_to_leave(PeerId worker, Seconds now) {
  if (const auto found = job_.workers.find(worker); found != job_.workers.end()) drain(found->second, now);
}

// Whether the configuration allows the arrangement, the caller knows.
std::string Coordinator::arrange(const Arrangement& arrangement, Seconds now) {
  if (std::string why = job_.why_not(arrangement); !why.empty()) return why;
  job_.automatic = false;
  job_.wanted = ArrangementChoice{arrangement, ""};
  if (arrangement == job_.arrangement) job_.wanted.reset();
  job_.world.event("arrange", {{"arrangement", to_string(arrangement)}});
  propose(now);
  return "";
}

std::string Coordinator::arrange_automatically(Seconds now) {
  if (job_.options.forecasts.of_workers.empty())
    return "nothing is predicted for this job: only one that began with --arrangement auto chooses by itself";
  job_.automatic = true;
  job_.wanted.reset();
  job_.world.event("arrange", {{"arrangement", "auto"}});
  propose(now);
  return "";
}

void Coordinator::ask_checkpoint(Seconds now) {
  planner_.ask_checkpoint();
  propose(now);
}

void Coordinator::ask_stop(const std::string& reason, Seconds now) {
  planner_.ask_stop(reason);
  if (job_.phase == Phase::starting || job_.phase == Phase::gathering) job_.end("stopped", reason);
  else if (liveness_.deserted())  // no worker would save anything
    job_.end("failed", reason + ", while all who have the state are silent; resume the run from its newest checkpoint");
  else if (job_.phase == Phase::holding) fence(reason, now);
  propose(now);
}

}  // namespace elinvar
