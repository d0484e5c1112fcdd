#include "elastic/protocol/member.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {

Member::Member(const MemberOptions& options)
    : options_(options), steps_(options.scaling.batch > 0 ? kUnknown : options.steps), leaves_(options.vranks) {}

int Member::id() const { return active() ? generation_->members[static_cast<size_t>(me_)].id : 0; }

// --- The loop.

Member::Next Member::next() {
  if (outcome_) return Next::done;
  if (!loaded_ && catching_up_.can_load()) return Next::load;
  if (!active() && catching_up_.learns() && !knows_layout()) return Next::layout;
  if (!loaded_ || waiting_for_release_ || (!active() && catching_up_.restores())) return Next::wait;
  const bool finished = completed_ > steps_;
  if (!active() && !finished) listen();
  if (!active() && (finished || knows_layout())) tell_ready();
  if (finished) return Next::wait;
  if (!active()) return Next::copy;
  if (fenced()) return Next::wait;
  if (completed_ < generation_->first_step) {
    listen();
    return Next::copy;
  }
  if (generation_->stop) return Next::wait;
  if (on_trial() && generation_->trial->replay && replayed_ != generation_->number) return Next::replay;
  return Next::leaves;
}

std::vector<int> Member::todo() const {
  std::vector<int> todo;
  if (!active() || completed_ > steps_ || completed_ < generation_->first_step) return todo;
  for (const Interval& interval : generation_->share(me_, completed_))
    for (int v = interval.begin; v < interval.end; ++v)
      if (!leaves_.has(v)) todo.push_back(v);
  if (const auto audit = leaf_to_audit(); audit && todo.empty()) todo.push_back(*audit);
  return todo;
}

bool Member::owns(int vrank) const { return active() && contains(generation_->share(me_, completed_), vrank); }

bool Member::digest_due() const {
  if (on_trial() && step_ == completed_) return true;
  return step_ > 0 &&
         (step_ == steps_ || due(step_, options_.state_digest_every) || due(step_, options_.checkpoint_every));
}

void Member::learn_layout(const RankGradient& leaf) {
  if (buckets_ || leaf.gradients.empty()) return;
  std::vector<Shape> shapes;
  for (const Tensor& t : leaf.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : leaf.batch_statistics) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(leaf.gradients.size());
  whole_buckets_.emplace(shapes, options_.bucket_elements, /*whole=*/true);
  buckets_.emplace(std::move(shapes), options_.bucket_elements);
  if (catching_up_.learns() && !active()) report(messages::Warm{});
}

const Buckets* Member::buckets_now() const { return last() ? nullptr : &*buckets_; }

void Member::add(int64_t step, int vrank, RankGradient leaf, double seconds) {
  if (step != completed_) return;
  testify(vrank, leaf);
  if (leaves_.has(vrank) || !owns(vrank)) return;
  if (!leaves_.is_open()) learn_layout(leaf);
  leaves_.add(vrank, std::move(leaf), seconds);
}

void Member::drop_leaves() {
  leaves_.clear();
  claims_ = {};
}

bool Member::opens(int vrank) const {
  if (!active() || fenced() || generation_->stop || members() == 1 || last() || !knows_layout()) return false;
  const std::vector<int> left = todo();
  return left.size() == 1 && left[0] == vrank && owns(vrank) && !leaves_.has(vrank);
}

void Member::open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& batch_statistics) {
  if (step != completed_ || !opens(vrank)) return;
  begin_exchange();
  leaves_.open(vrank, count, exchange_->buckets());
  for (size_t i = 0; i < batch_statistics.size(); ++i) put(gradients_ + static_cast<int>(i), batch_statistics[i]);
}

void Member::begin_exchange() {
  exchange_.emplace(options_.vranks, members(), me_, buckets_now(), gradients_);
  if (options_.spoil)
    exchange_->spoil([this](int bucket, std::vector<Tensor>& sums) { options_.spoil(completed_, bucket, sums); });
  audit_exchange();
  if (reduces_in_group()) exchange_->use(groups_.at(generation()), &*whole_buckets_);
  deliver_early();
}

// After a fence there is no exchange: the leaf is folded, and goes out with the others in the next generation.
void Member::put(int gradient, Tensor value, bool passes) {
  if (!leaves_.is_open()) return;
  for (const int bucket : leaves_.put(gradient, std::move(value), passes))
    if (exchange_) exchange_->contribute(bucket, leaves_.roots(), leaves_.count(), sender());
}

bool Member::work() {
  if (!exchange_ || !exchange_->work(sender())) return false;
  if (exchange_->audit()) claims_.sums = exchange_->audit()->said();
  return true;
}

void Member::contribute(const std::optional<Digest>& state, const StateDigests& parts) {
  if (!active() || fenced() || completed_ < generation_->first_step || generation_->stop || !todo().empty()) return;
  if (!exchange_) begin_exchange();
  if (audits() && state) claims_.states.push_back(*state);
  std::vector<Subtree> roots;
  for (const Subtree* root : leaves_.roots()) roots.push_back(*root);
  if (members() == 1 && !audits()) leaves_.drop_sums();
  const messages::TrailerPart part{.member = me_,
                                   .held = proposed_.empty() ? generation_->number : proposed_.rbegin()->first,
                                   .seconds = leaves_.seconds(),
                                   .facts = leaves_.facts(),
                                   .state = state,
                                   .scaling_state = scaling_state_,
                                   .audit = claims_to_tell(),
                                   .group = groups_.contains(generation()) ? group_name(generation()) : 0};
  exchange_->contribute(std::move(roots), part, parts, sender());
}

Member::Progress Member::reduce() {
  if (!exchange_ || exchange_->owes() || outcome_) return Progress::abandoned;
  while (work()) {
  }
  if (!exchange_->trouble().empty()) group_stalled(exchange_->trouble());
  if (!exchange_->complete() || !passes_audit()) return Progress::waiting;
  finish_reduction();
  return Progress::complete;
}

void Member::finish_reduction() {
  std::vector<Tensor> values = exchange_->values();
  messages::Trailer trailer = exchange_->trailer();
  if (me_ == 0 && exchange_->in_group() && group_told_ != generation()) {
    group_told_ = generation();
    report(messages::GroupUsed{group_made_});
  }
  exchange_.reset();

  reduced_ = {};
  reduced_.generation = generation();
  Hasher batches;
  double loss_sum = 0;
  for (const RankFacts& facts : trailer.facts) {
    batches.add(facts.batch);
    loss_sum += facts.loss_sum;
    reduced_.count += facts.count;
    reduced_.correct += facts.correct;
    reduced_.samples += facts.samples;
    reduced_.leaves += facts.samples > 0;
  }
  reduced_.batch = batches.digest();
  reduced_.loss = loss_sum / static_cast<double>(reduced_.count);
  reduced_.facts = trailer.facts;
  reduced_.state = trailer.state;
  reduced_.state_digests = trailer.state_digests;
  reduced_.seconds = trailer.seconds;
  reduced_.gradients = values;
  if (!values.empty()) {
    reduced_.batch_statistics.assign(values.begin() + gradients_, values.end());
    reduced_.gradients.resize(static_cast<size_t>(gradients_));
  }
  contradiction_ = trailer.contradiction;

  const int64_t step = completed_++;
  if (trailer.scaling_state) {
    reduced_.scaling_state = *trailer.scaling_state;
    scaling_state_.reset();
    if (step < steps_) {  // the last reduction is no part of the state
      ScalingState made = *trailer.scaling_state;
      made.samples += reduced_.samples;
      set_made(made);
    }
  }
  drop_leaves();
  std::erase_if(early_, [&](const Message& m) { return m.step < completed_; });

  // Somebody may turn out to lack it after a death; nobody can who is not there. What is given to others is of the
  // host's memory; beside leaves that come a device alone has no room for it.
  const bool kept = !active() || members() > 1 || !transfers_.empty() || !proposed_.empty();
  if (kept && (members() == 1 || !transfers_.empty())) values = on_host(values);
  for (const auto& [peer, transfer] : transfers_)
    if (transfer.request.copies && transfer.step <= step)
      give_copy(peer, step, transfer.request.attempt, values, trailer);
  agreed_ = std::max(agreed_, trailer.agreed);
  group_agreed_ = trailer.group;
  last_values_.clear();
  last_trailer_.reset();
  if (kept) {
    last_values_ = std::move(values);
    last_trailer_ = std::move(trailer);
  }
  enter_agreed();
  settle_scaling_state();
}

Reduced Member::take_reduced() { return std::exchange(reduced_, {}); }

void Member::advance(StepFacts facts) {
  invariant(step_ < completed_, "an update follows a reduction");
  const int64_t made = facts.step = step_++;
  facts_.add(facts);
  // A checkpoint may wait for the digest of a state, or for this step; the end of the run for the last facts.
  const bool waited_for = facts.state || asked_to_save() || made >= steps_;
  if (waited_for || facts_.gathered(made, options_.untold)) tell_facts();
  if (asked_to_save() || scheduled()) save();
  for (const auto& [peer, transfer] : transfers_)
    if (transfer.step == step_) give_part(transfer);
}

// Whether the state now belongs into a checkpoint.
bool Member::scheduled() const { return step_ <= steps_ && (due(step_, options_.checkpoint_every) || step_ == steps_); }

bool Member::asked_to_save() const {
  return generation_ && generation_->checkpoint && step_ == generation_->first_step;
}

// The last reduction is of the trailer alone and changes no state: after it the boundary is still that of `steps`.
void Member::save() {
  if (!active()) return;
  parts_.push_back({.step = std::min(step_, steps_),
                    .part = me_,
                    .parts = static_cast<int>(generation_->members.size()),
                    .to = 0,
                    .scaling_state = made_,
                    .attested = asked_to_save()});
}

}  // namespace elinvar
