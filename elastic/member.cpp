#include "elastic/member.h"

#include <algorithm>

#include "tensor/check.h"

namespace elinvar {

using Json = nlohmann::json;

Member::Member(const MemberOptions& options)
    : options_(options), steps_(options.scaling.batch > 0 ? kUnknown : options.steps) {}

int Member::id() const { return active() ? generation_->members[static_cast<size_t>(me_)].id : 0; }

// --- The loop.

Member::Next Member::next() {
  if (outcome_) return Next::done;
  if (!loaded_) return restore_step_ || state_whole_ ? Next::load : Next::wait;
  if (waiting_for_release_ || (!active() && restore_step_)) return Next::wait;
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
  return Next::leaves;
}

std::vector<int> Member::todo() const {
  std::vector<int> todo;
  if (!active() || completed_ > steps_ || completed_ < generation_->first_step) return todo;
  for (const Interval& interval : generation_->share(me_, completed_))
    for (int v = interval.begin; v < interval.end; ++v)
      if (!facts_.contains(v)) todo.push_back(v);
  return todo;
}

bool Member::digest_due() const {
  return step_ > 0 &&
         (step_ == steps_ || due(step_, options_.state_digest_every) || due(step_, options_.checkpoint_every));
}

void Member::learn_layout(const Leaf& leaf) {
  if (buckets_ || leaf.gradients.empty()) return;
  std::vector<Shape> shapes;
  for (const Tensor& t : leaf.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : leaf.terms) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(leaf.gradients.size());
  buckets_.emplace(std::move(shapes), options_.bucket_elements);
}

const Buckets* Member::buckets_now() const { return last() ? nullptr : &*buckets_; }

void Member::add(int64_t step, int vrank, Leaf leaf, double seconds) {
  if (step != completed_ || facts_.contains(vrank)) return;
  facts_.emplace(vrank, std::move(leaf.facts));
  if (seconds > 0) {
    leaf_seconds_ += seconds;
    ++leaf_count_;
  }
  std::vector<Tensor> values;
  if (!leaf.gradients.empty()) {
    learn_layout(leaf);
    values = std::move(leaf.gradients);
    std::move(leaf.terms.begin(), leaf.terms.end(), std::back_inserter(values));
  }
  for (TreeFold& fold : folds_)
    if (fold.subtrees().back().end == vrank) return fold.add(vrank, std::move(values));
  folds_.emplace_back(options_.vranks).add(vrank, std::move(values));
}

void Member::contribute(const std::optional<Digest>& state) {
  if (!active() || fenced() || completed_ < generation_->first_step || generation_->stop || !todo().empty()) return;
  const int members = static_cast<int>(generation_->members.size());
  std::vector<Subtree> roots;
  for (TreeFold& fold : folds_) roots.insert(roots.end(), fold.subtrees().begin(), fold.subtrees().end());
  std::sort(roots.begin(), roots.end(), [](const Subtree& a, const Subtree& b) { return a.begin < b.begin; });
  if (members == 1) folds_.clear();
  exchange_.emplace(options_.vranks, members, me_, buckets_now(), gradients_);
  const TrailerPart part{.held = proposed_.empty() ? generation_->number : proposed_.rbegin()->first,
                         .seconds = leaf_count_ > 0 ? leaf_seconds_ / leaf_count_ : 0,
                         .facts = facts_,
                         .state = state,
                         .pace = pace_};
  exchange_->contribute(std::move(roots), part, sender());
  replay();
}

Member::Progress Member::reduce() {
  if (!exchange_ || outcome_) return Progress::abandoned;
  while (exchange_->work(sender())) {
  }
  if (!exchange_->complete()) return Progress::waiting;
  finish_reduction();
  return Progress::complete;
}

void Member::finish_reduction() {
  std::vector<Tensor> values = exchange_->values();
  Trailer trailer = exchange_->trailer();
  exchange_.reset();

  reduced_ = {};
  Hasher batches;
  double loss_sum = 0;
  for (const LeafFacts& facts : trailer.facts) {
    batches.add(facts.batch);
    loss_sum += facts.loss_sum;
    reduced_.count += facts.count;
    reduced_.correct += facts.correct;
    reduced_.samples += facts.samples;
    reduced_.leaves += facts.samples > 0;
    reduced_.attached.push_back(facts.attached);
  }
  reduced_.batch = batches.digest();
  reduced_.loss = loss_sum / static_cast<double>(reduced_.count);
  reduced_.state = trailer.state;
  reduced_.seconds = trailer.seconds;
  reduced_.gradients = values;
  if (!values.empty()) {
    reduced_.terms.assign(values.begin() + gradients_, values.end());
    reduced_.gradients.resize(static_cast<size_t>(gradients_));
  }
  contradiction_ = trailer.contradiction;

  const int64_t step = completed_++;
  if (trailer.pace) {
    reduced_.pace = *trailer.pace;
    pace_.reset();
    if (step < steps_) {  // the last reduction is no part of the state
      Pace made = *trailer.pace;
      made.samples += reduced_.samples;
      set_made(made);
    }
  }
  facts_.clear();
  folds_.clear();
  leaf_seconds_ = 0;
  leaf_count_ = 0;
  std::erase_if(early_, [&](const Message& m) { return m.step < completed_; });

  const Buckets* buckets = step == steps_ ? nullptr : &*buckets_;
  for (const auto& [peer, feed] : feeds_)
    if (feed.copies && feed.step <= step)
      give(buckets, values, trailer, [&, to = peer, attempt = feed.attempt](Message m) {
        m.generation = kCopy;
        m.step = step;
        m.body["attempt"] = attempt;
        actions_.push_back({Action::What::send, to, {}, std::move(m)});
      });
  agreed_ = std::max(agreed_, trailer.agreed);
  last_values_.clear();
  last_trailer_.reset();
  // Somebody may turn out to lack it after a death; nobody can who is not there.
  if (!active() || generation_->members.size() > 1 || !feeds_.empty() || !proposed_.empty()) {
    last_values_ = std::move(values);
    last_trailer_ = std::move(trailer);
  }
  enter_agreed();
  settle_pace();
}

Reduced Member::take_reduced() { return std::exchange(reduced_, {}); }

void Member::advance(const Json& facts) {
  invariant(step_ < completed_, "an update follows a reduction");
  const int64_t made = step_++;
  unacknowledged_.emplace_back(made, facts);
  if (me_ == 0) report({.kind = "facts", .step = made, .body = facts});
  const bool asked = generation_ && generation_->checkpoint && step_ == generation_->first_step;
  if (asked || scheduled()) save();
  for (const auto& [peer, feed] : feeds_)
    if (feed.step == step_) give_part(peer, feed);
}

// Whether the state now belongs into a checkpoint.
bool Member::scheduled() const { return step_ <= steps_ && (due(step_, options_.checkpoint_every) || step_ == steps_); }

// The last reduction is of the trailer alone and changes no state: after it the boundary is still that of `steps`.
void Member::save() {
  if (!active()) return;
  parts_.push_back({.step = std::min(step_, steps_),
                    .part = me_,
                    .parts = static_cast<int>(generation_->members.size()),
                    .to = 0,
                    .pace = made_});
}

}  // namespace elinvar
