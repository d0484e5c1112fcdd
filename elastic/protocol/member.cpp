#include "elastic/protocol/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

Member::Member(const MemberOptions& options)
    : options_(options),
      outbox_(position_),
      facts_(options.report_every, position_, outbox_),
      scaling_(options.scaling),
      layout_(options.bucket_elements, options.sharding, options.parts),
      replica_(position_, layout_),
      replica_exchange_(position_, replica_, outbox_),
      stage_exchange_(position_, replica_, outbox_),
      shards_(position_, layout_),
      parameter_fetch_(position_, layout_, shards_, outbox_),
      catching_up_(position_, outbox_),
      audit_(options.audit, options.vranks, position_, outbox_),
      groups_(options.groups, position_, outbox_),
      inbox_(position_, catching_up_, outbox_),
      reduction_({.vranks = options.vranks, .spoil = options.spoil}, position_, layout_, inbox_, audit_, groups_,
                 shards_, replica_),
      gradients_({.vranks = options.vranks,
                  .checkpoint_every = options.checkpoint_every,
                  .state_digest_every = options.state_digest_every},
                 position_, scaling_, layout_, replica_, audit_, reduction_),
      transfers_(options.checkpoint_every, position_, layout_, outbox_, facts_, scaling_, shards_),
      values_(position_, layout_, catching_up_, shards_, outbox_),
      missed_(options.endpoint, position_, layout_, inbox_, reduction_, outbox_) {
  position_.self = options.self;
  if (!scaling_.adaptive()) position_.steps = options.steps;
}

// --- The loop.

Member::Next Member::next() {
  const bool active = position_.active();
  if (outcome_) return Next::done;
  if (!position_.loaded && catching_up_.can_load()) return Next::load;
  if (!active && catching_up_.learns() && !layout_.known()) return Next::layout;
  if (!position_.loaded || waiting_for_release_ || (!active && catching_up_.restores())) return Next::wait;
  const bool finished = position_.completed > position_.steps;
  if (!active && !finished) missed_.listen();
  if (!active && (finished || layout_.known())) report_ready();
  if (finished) return Next::wait;
  if (!active) return Next::copy;
  if (position_.fenced()) return inbox_.exchange() ? Next::copy : Next::wait;
  if (!position_.begun()) {
    missed_.listen();
    return Next::copy;
  }
  if (position_.generation->stop) return Next::wait;
  return audit_.replay_due() ? Next::replay : Next::gradients;
}

void Member::learn_layout(const RankGradient& gradient) {
  if (layout_.learn(gradient)) catching_up_.report_warm();
}

Member::Progress Member::reduce() {
  if (outcome_) return Progress::abandoned;
  switch (reduction_.reduce()) {
    case StepReduction::Progress::waiting:
      return Progress::waiting;
    case StepReduction::Progress::abandoned:
      return Progress::abandoned;
    case StepReduction::Progress::disagreed:
      facts_.report_new();  // facts of earlier steps, because the run may end with this one
      audit_.report();
      return Progress::waiting;
    case StepReduction::Progress::complete:
      break;
  }
  finish_reduction();
  return Progress::complete;
}

void Member::finish_reduction() {
  StepReduction::Result result = reduction_.take();
  const bool was_active = position_.active();
  // The group carries parameters in ZeRO's second stage, too, although it adds up no gradients there.
  const bool takes_part = groups_.agreed() && !result.listened && !position_.last();
  const bool shards_gradients = takes_part && shards_.zero() == 2;
  const bool within =
      takes_part && (position_.generation->divides_shards() || position_.generation->divides_segments());
  groups_.reduced(result.trailer.group, result.in_group || shards_gradients || within);
  // Some members may not know yet of the generation that begins now, but all of them know from the trailer that one
  // does.
  const bool goes_on = result.trailer.agreed <= position_.number();
  std::shared_ptr<GpuGroup> group = (result.in_group || shards_gradients) && goes_on ? groups_.agreed() : nullptr;

  const int64_t step = position_.completed++;
  shards_.committed(step);
  if (layout_.sharded() && step < position_.steps)
    values_.begin(step, /*sends=*/!result.listened, std::move(result.kept), std::move(group));
  if (result.trailer.scaling_state) {
    scaling_.forget_current();
    if (step < position_.steps) {  // the last reduction does not change the state
      ScalingState made = *result.trailer.scaling_state;
      made.samples += result.samples;
      set_made(made);
    }
  }
  gradients_.next_step();
  inbox_.prune();
  replica_exchange_.prune();
  stage_exchange_.prune();
  parameter_fetch_.prune();

  agreed_ = std::max(agreed_, result.trailer.agreed);
  // After a death another process may lack the result, unless there is no other process.
  const bool kept = !position_.active() || position_.members() > 1 || transfers_.any() || !position_.proposed.empty();
  transfers_.completed(step, std::move(result.values), std::move(result.trailer), kept);
  use_stage();
  enter_agreed();
  values_.review();
  if (result.listened && was_active) values_.ask(options_.endpoint);
  // A commit that it has learned of behind the fence: the record must not begin with the step before.
  if (layout_.sharded() && position_.active() && position_.fenced()) fenced_by(position_.promised);
  scaling_.settle(position_);
}

std::string Member::missing() const {
  std::string missing = replica_exchange_.missing();
  if (missing.empty()) missing = stage_exchange_.missing();
  if (missing.empty()) missing = parameter_fetch_.missing();
  if (missing.empty()) missing = reduction_.missing();
  return missing.empty() ? values_.missing() : missing;
}

void Member::advance(StepFacts facts) {
  invariant(position_.step < position_.completed, "an update follows a reduction");
  invariant(!values_.pending() || values_.complete(), "all parts of an update are made");
  values_.end();
  transfers_.gave_values();
  const int64_t made = facts.step = position_.step++;
  facts_.add(facts);
  // A checkpoint may wait for a state's digest or for this step; the end of the run waits for the last facts.
  const bool waited_for = facts.state || transfers_.asked_to_save() || made >= position_.steps;
  if (waited_for || facts_.gathered(made)) facts_.report_new();
  if (transfers_.asked_to_save() || transfers_.scheduled()) transfers_.save(transfers_.asked_to_save());
  transfers_.at_boundary();
  transfers_.move();
}

// Sets the scaling state of the state after the reductions before `completed`.
void Member::set_made(const ScalingState& state) {
  scaling_.set_made(state);
  if (!position_.known_steps() && scaling_.goal_reached()) position_.steps = position_.completed;
}

// --- The state of a newcomer.

void Member::loaded(const StateLoad& load) {
  if (position_.active() || !catching_up_.is_current(load)) return;
  position_.completed = position_.step = load.step;
  gradients_.next_step();  // a rank gradient may have been under way when the old state was given up
  scaling_.forget_current();
  if (scaling_.adaptive()) {
    position_.steps = kUnknownSteps;
    set_made(load.scaling_state);
    if (load.end) position_.steps = *load.end;
  }
  transfers_.forget_result();
  position_.loaded = true;
  inbox_.prune();
  values_.review();
  if (load.restore) {
    layout_.use(load.zero);
    shards_.restored(load.zero);
  } else {
    shards_.learned();
  }
  if (load.restore) catching_up_.report_ready();
}

void Member::receive_state(int64_t step, const messages::StatePieces& pieces) {
  if (position_.active()) return;
  const CatchingUp::Took took = catching_up_.take(step, pieces);
  if (took == CatchingUp::Took::dropped) return;
  if (took == CatchingUp::Took::first_piece) forget_state();
  // The sender's unconfirmed facts may not be recorded anywhere; now two members keep them.
  if (!pieces.facts.empty()) facts_.adopt(pieces.facts);
}

// Drops the state, because another one arrives.
void Member::forget_state() {
  position_.loaded = false;
  inbox_.end();
  values_.end();
}

void Member::report_ready() {
  if (!catching_up_.ready() && inbox_.early() == 0) catching_up_.report_ready();
}

// --- From one generation to the next.

void Member::fenced_by(int64_t fence) {
  if (fence > position_.promised) {
    position_.promised = fence;
    position_.proposed.clear();
    transfers_.stop_all();
    audit_.fence();
    if (position_.active()) reduction_.fence();
    gradients_.fence();
    values_.fence(options_.endpoint);
    groups_.fence();
    inbox_.prune();
    shards_.prune();
    values_.review();
  }
  messages::Fenced answer{.promised = position_.promised,
                          .active = position_.active(),
                          .loaded = position_.loaded,
                          .keeps = transfers_.keeps_result(),
                          .lacks_values = !values_.missing().empty(),
                          .group = groups_.spare()};
  // If it learned of a commit only after the fence, it may not know the generation that followed the commit.
  const bool newest = agreed_ <= position_.number();
  if (position_.begun() && newest && position_.completed <= position_.steps && !reduction_.keeps_none())
    answer.share = position_.generation->share(position_.index, position_.completed);
  if (scaling_.adaptive() && position_.loaded) answer.scaling_state = scaling_.current();
  answer.certain = scaling_.adaptive() && scaling_.certain();
  if (scaling_.adaptive()) answer.end = position_.known_steps();
  answer.shards = shards_.held();
  facts_.report_all();
  outbox_.report(std::move(answer));
  missed_.fenced();
}

void Member::start(const messages::Start& start) {
  const Generation& generation = start.record;
  if (generation.number < position_.promised || generation.number <= position_.number()) return;
  if (generation.index_of(position_.self) < 0) {
    if (position_.active())
      outcome_ = {"expelled", fmt::format("generation {}: {}", generation.number, generation.reason), !draining_};
    return;
  }
  const int64_t first = generation.first_step, completed = position_.completed;
  if (!position_.loaded || completed < first - 1 || completed > first) {
    outcome_ = {"expelled", "has another step than the others", !draining_};
    return;
  }
  // No member that counts has begun the step with this member's inputs.
  const bool other_state = generation.scaling && generation.scaling->scaling_state && scaling_.certain() &&
                           *generation.scaling->scaling_state != *scaling_.certain();
  if (completed == first && other_state) {
    gradients_.next_step();
    scaling_.forget_current();
  }
  inbox_.end();
  agreed_ = std::max(agreed_, generation.number);
  if (completed == first) {  // no member has completed the interrupted step
    shards_.uncommitted();
    reduction_.forget();
  }
  if (completed < first) {
    gradients_.next_step();
    missed_.begins_with(first, start.completed);
  }
  enter(Generation(generation), first);
  gradients_.fence();  // this generation may not let members keep rank gradients of the one before
  values_.ask(options_.endpoint);
}

void Member::propose(Generation generation) {
  if (generation.number <= std::max(position_.promised, position_.number())) return;
  outbox_.connect_members(generation);
  // A generation without this worker concerns it only if an earlier one names it, which may have begun without its
  // knowledge.
  if (!position_.active() && position_.proposed.empty() && generation.index_of(position_.self) < 0) return;
  const bool was_active = position_.active();
  groups_.propose(generation);
  position_.proposed[generation.number] = std::move(generation);
  enter_agreed();
  // A learner may have made the update before it hears that it was a member by then. It then still owes its part.
  if (!was_active && position_.active() && position_.step == position_.completed && transfers_.scheduled())
    transfers_.save(transfers_.asked_to_save());
}

void Member::enter_agreed() {
  const auto found = position_.proposed.find(agreed_);
  if (found != position_.proposed.end()) enter(Generation(found->second), position_.completed);
}

void Member::enter(Generation generation, int64_t first_step) {
  generation.first_step = first_step;
  inbox_.end();  // ends the exchange of a learner that was listening
  const bool planned = !position_.fenced();
  const Generation before = std::exchange(position_.generation, std::move(generation)).value_or(Generation{});
  const Generation& now = *position_.generation;
  position_.proposed.erase(position_.proposed.begin(), position_.proposed.upper_bound(now.number));
  position_.promised = std::max(position_.promised, now.number);
  position_.index = now.index_of(position_.self);
  if (now.sharding && !layout_.sharded() && position_.index >= 0) shards_.begins();
  use_stage();
  groups_.enter(before, planned);
  scaling_.settle(position_);
  waiting_for_release_ = position_.index < 0;
  outbox_.connect_members(now);
  for (const GenerationMember& m : now.members) transfers_.stop(m.peer);
  inbox_.prune();
  shards_.prune();
  replica_exchange_.prune();
  stage_exchange_.prune();
  parameter_fetch_.prune();
  if (transfers_.asked_to_save() && position_.step == position_.completed) transfers_.save(/*attested=*/true);
  transfers_.move();
  outbox_.report(messages::Entered{.end = scaling_.adaptive() ? position_.known_steps() : std::nullopt});
  if (position_.index == 0) facts_.report_all();
}

// Another generation may have another stage of ZeRO, from its first step on.
void Member::use_stage() {
  if (position_.begun()) layout_.use(shards_.zero());
}

// --- The outside.

void Member::introduce(PeerId coordinator, const WorkerInfo& about) {
  position_.coordinator = coordinator;
  outbox_.report(messages::Hello{.about = about,
                                 .active = position_.active(),
                                 .loaded = position_.loaded,
                                 .whole = shards_.whole(),
                                 .warm = layout_.known(),
                                 .ready = catching_up_.ready(),
                                 .attempt = catching_up_.attempt(),
                                 .promised = position_.promised,
                                 .draining = draining_,
                                 .id = position_.id(),
                                 .learners = transfers_.learners()});
  if (position_.index == 0) facts_.report_all();
}

void Member::heartbeat(messages::Alive alive) {
  facts_.report_new(alive);
  outbox_.report(std::move(alive));
  audit_.report();  // the current coordinator may not have the evidence
  groups_.repeat_trouble();
}

void Member::drain() {
  draining_ = true;
  outbox_.report(messages::Drain{});
}

void Member::failed(const std::string& reason, int exit_code) {
  facts_.report_all();
  outbox_.report(messages::Failed{.reason = reason, .exit_code = exit_code});
}

void Member::give_up(const std::string& reason) { outcome_ = {"alone", reason, false}; }

void Member::lost(PeerId peer, const std::string& reason) {
  if (peer == position_.coordinator) return;  // elastic/session/watch.h
  transfers_.stop(peer);
  const bool fellow = position_.generation && position_.generation->index_of(peer) >= 0;
  if (fellow || !position_.active()) outbox_.report(messages::Suspect{peer, reason});
}

void Member::receive(const Message& m) {
  if (ExchangeInbox::takes(m)) return inbox_.receive(m);
  const bool from_member = visit(
      m.payload, [&](const messages::Fetch& told) { transfers_.give_result(m, told); },
      [&](const messages::ShardValues& told) { replica_exchange_.receive(m, told); },
      [&](const messages::WantParameters& told) { parameter_fetch_.receive(m, told); },
      [&](const messages::ParameterValues& told) { parameter_fetch_.receive(m, told); },
      [&](const messages::WantRows& told) { parameter_fetch_.receive(m, told); },
      [&](const messages::RowValues& told) { parameter_fetch_.receive(m, told); },
      [&](const messages::BoundaryValue& told) { stage_exchange_.receive(m, told); },
      [&](const messages::GradientDigests& told) { stage_exchange_.receive(m, told); },
      [&](const messages::BucketValues& told) { values_.receive(m, told); },
      [&](const messages::BucketSums& told) { values_.receive(m, told); },
      [&](const messages::WantValues& told) {
        values_.receive(m, told);
        missed_.asked_for_values(m);
      },
      [&](const messages::BucketState& told) {
        shards_.receive(m, told);
        reduction_.send_part();
      },
      [&](const messages::GroupName& told) { groups_.receive(m, told); },
      [&](const messages::GroupAgain& told) { groups_.receive(m, told); },
      [&](const messages::StatePieces& told) { receive_state(m.step, told); });
  // A former coordinator that may not know that it was replaced is not obeyed.
  if (!from_member && m.sender == position_.coordinator) obey(m);
}

void Member::obey(const Message& m) {
  visit(
      m.payload, [&](const messages::Fence&) { fenced_by(m.generation); },
      [&](const messages::Start& told) { start(told); }, [&](const messages::Propose& told) { propose(told.record); },
      [&](const messages::Welcome& told) { welcome(m.generation, told); },
      [&](const messages::Refused& told) {
        outcome_ = {"refused", told.reason, told.again};
      },
      [&](const messages::Release& told) {
        // The first answer counts: a refused worker gets no second one.
        if (!outcome_) outcome_ = {told.what, told.reason, told.again};
      },
      [&](const messages::Ack&) { facts_.confirm(m.step); },
      [&](const messages::SendState& told) { transfers_.begin(m.step, told); },
      [&](const messages::StopSending& told) { transfers_.stop(told.peer); });
}

void Member::welcome(int64_t number, const messages::Welcome& told) {
  if (position_.active() && told.restore && number > position_.number()) return_to_start(number);
  if (position_.active()) return;
  if (!told.restore) return catching_up_.learn();
  if (layout_.sharded() && !shards_.whole()) catching_up_.forget();
  if (catching_up_.restore(*told.restore, told.zero)) {  // the state received from members is not used
    forget_state();
    inbox_.clear_early();
    // Unrecorded steps will be repeated, and may become different, also if this worker cannot read the checkpoint.
    if (scaling_.adaptive()) facts_.forget();
  } else if (position_.loaded) {  // already reported to an earlier coordinator
    catching_up_.report_ready();
  }
}

// With ZeRO: no member that is left has some part of the state, so all restore a checkpoint. Fences up to this number
// are over.
void Member::return_to_start(int64_t number) {
  layout_.use(shards_.held_here());  // what this generation was to change is not changed
  position_.promised = std::max(position_.promised, number);
  position_.generation.reset();
  position_.proposed.clear();
  position_.index = -1;
  inbox_.end();
  reduction_.forget();
  values_.forget();
  gradients_.next_step();
  transfers_.stop_all();
  transfers_.forget_result();
  catching_up_.forget();
  position_.loaded = false;
  waiting_for_release_ = false;
  missed_.forget();
}

}  // namespace elinvar
