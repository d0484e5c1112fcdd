// A member: fences, and how it goes from one generation to the next.
#include "elastic/protocol/member.h"

#include <algorithm>

namespace elinvar {

void Member::connect_members(const Generation& generation) {
  for (const GenerationMember& m : generation.members)
    if (m.peer != options_.self) actions_.push_back({Action::What::connect, m.peer, m.endpoint, {}});
}

void Member::fenced_by(int64_t fence) {
  if (fence > promised_) {
    promised_ = fence;
    proposed_.clear();
    transfers_.clear();
    evidence_.reset();
    group_trouble_.reset();
    if (active()) exchange_.reset();
    drop_groups();
    std::erase_if(early_, [&](const Message& e) { return e.generation != kCopy && e.generation < promised_; });
  }
  messages::Fenced answer{.promised = promised_,
                          .active = active(),
                          .loaded = loaded_,
                          .keeps = last_trailer_.has_value(),
                          .group = spare_group()};
  if (active() && completed_ >= generation_->first_step && completed_ <= steps_)
    answer.share = generation_->share(me_, completed_);
  if (adaptive() && loaded_) answer.scaling_state = scaling_state();
  answer.certain = adaptive() && scaling_state_.has_value();
  if (adaptive()) answer.end = steps();
  report_facts();
  report(std::move(answer));
}

// After the reductions before completed_, this is the scaling state of the state.
void Member::set_made(const ScalingState& scaling_state) {
  made_ = scaling_state;
  if (steps_ == kUnknown && made_.samples >= options_.scaling.goal) steps_ = completed_;
}

// Of the next step, unless it is certain already: a generation that begins later says nothing of it.
void Member::settle_scaling_state() {
  if (!adaptive() || scaling_state_ || !active() || completed_ < generation_->first_step || !generation_->scaling)
    return;
  const GenerationScaling& scaling = *generation_->scaling;
  ScalingState scaling_state = made_;
  if (completed_ == generation_->first_step) {
    if (scaling.scaling_state) scaling_state = *scaling.scaling_state;
    else if (scaling.batch > 0) scaling_state = rescaled(scaling_state, completed_, scaling.batch, options_.scaling);
  }
  for (const auto& [step, batch] : scaling.recorded)
    if (step == completed_) scaling_state = rescaled(scaling_state, step, batch, options_.scaling);
  scaling_state_ = scaling_state;
}

void Member::start(const messages::Start& start) {
  const Generation& generation = start.record;
  if (generation.number < promised_ || generation.number <= this->generation()) return;
  if (generation.index_of(options_.self) < 0) {
    if (active())
      outcome_ = {"expelled", "generation " + std::to_string(generation.number) + ": " + generation.reason, !draining_};
    return;
  }
  const int64_t first = generation.first_step;
  if (!loaded_ || completed_ < first - 1 || completed_ > first) {
    outcome_ = {"expelled", "has another step than the others", !draining_};
    return;
  }
  // Nobody who counts has begun the step with what this member holds of it.
  const bool other_state =
      generation.scaling && generation.scaling->scaling_state && *generation.scaling->scaling_state != scaling_state_;
  if (completed_ == first && scaling_state_ && other_state) {
    drop_leaves();
    scaling_state_.reset();
  }
  exchange_.reset();
  agreed_ = std::max(agreed_, generation.number);
  if (completed_ < first) {
    drop_leaves();
    for (const auto& [peer, completed] : start.completed)
      if (completed == first) ahead_ = peer;
  }
  enter(Generation(generation), first);
}

void Member::propose(Generation generation) {
  if (generation.number <= std::max(promised_, this->generation())) return;
  connect_members(generation);
  // One without it concerns it only if it is named in one before, which may have begun without its knowledge.
  if (!active() && proposed_.empty() && generation.index_of(options_.self) < 0) return;
  const bool was_active = active();
  ask_for_group(generation);
  proposed_[generation.number] = std::move(generation);
  enter_agreed();
  // A learner may have made the update before it hears that it was a member by then, and owes its part.
  if (!was_active && active() && step_ == completed_ && scheduled()) save();
}

void Member::enter_agreed() {
  const auto found = proposed_.find(agreed_);
  if (found != proposed_.end()) enter(Generation(found->second), completed_);
}

void Member::enter(Generation generation, int64_t first_step) {
  generation.first_step = first_step;
  exchange_.reset();  // of a learner that was listening
  group_trouble_.reset();
  const bool planned = !fenced();
  const Generation before = std::exchange(generation_, std::move(generation)).value_or(Generation{});
  proposed_.erase(proposed_.begin(), proposed_.upper_bound(generation_->number));
  promised_ = std::max(promised_, generation_->number);
  me_ = generation_->index_of(options_.self);
  inherit_group(before, planned);
  drop_groups();
  ask_for_group(*generation_);
  settle_scaling_state();
  waiting_for_release_ = me_ < 0;
  connect_members(*generation_);
  for (const GenerationMember& m : generation_->members) transfers_.erase(m.peer);
  std::erase_if(early_, [&](const Message& m) { return m.generation != kCopy && m.generation < promised_; });
  if (asked_to_save() && step_ == completed_) save();
  report(messages::Entered{.end = adaptive() ? steps() : std::nullopt});
  if (me_ == 0) report_facts();
}

}  // namespace elinvar
