// A session: takes gradients from the loop, whole or one tensor after another.
#include <algorithm>
#include <csignal>

#include "elastic/ledger/step_facts.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/digest_tree.h"
#include "tensor/ops/copies.h"
#include "tensor/side_queue.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

bool Session::Impl::flip(Fault::Flips what, int64_t step, std::span<Tensor> tensors, nlohmann::json about) {
  if (replay) return false;  // the steps of a replay are past
  const auto bit = worker_faults.flips(what, member.position().id(), member.position().index == 0, step, tensors);
  if (!bit) return false;
  about.update({{"bit", *bit}, {"what", name_of(what)}});
  tell_fault("flip", step, std::move(about));
  return true;
}

void Session::Impl::tell_fault(const char* what, int64_t step, nlohmann::json fields) {
  fields.update({{"cause", "chaos"}, {"worker", member.position().id()}, {"step", step + 1}});
  transmit(member.position().coordinator, {.payload = messages::FaultInjected{.event = what, .about = fields}});
}

void Session::Impl::die(Fault::Point at, int64_t step) {
  // The network has a thread of its own, which needs this time to send what was passed to it before.
  constexpr std::chrono::milliseconds kSending{5};
  if (replay || !worker_faults.dies(at, member.position().id(), member.position().index == 0, step)) return;
  tell_fault(name_of(Fault::What::kill), step, {{"at", name_of(at)}});
  std::this_thread::sleep_for(kSending);
  std::raise(SIGKILL);
}

Session::Task::Task(Impl& session, int vrank)
    : session_(session),
      vrank_(vrank),
      counts_(session.at_work().gradients().counts(vrank)),
      begun_(session.at_work().gradients().begun(vrank)),
      began_(Clock::now()) {
  Member& member = session.at_work();
  if (!begun_.together) return;
  session.replica.begin(member.replica(), member.position().index);
  member.replica_exchange().begin(vrank);
}

ShardGroup& Session::Task::shards() {
  if (begun_.together) return session_.replica;
  return local_shards();
}

bool Session::Task::stale() const { return session_.at_work().gradients().stale(vrank_, begun_); }

// The time in which this worker alone would compute the gradient.
double Session::Task::seconds() const {
  const std::chrono::duration<double> seconds = Clock::now() - began_;
  return begun_.together ? session_.replica.alone(seconds) : seconds.count();
}

Session::Task* Session::next() {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  const std::vector<int> todo = s.at_work().gradients().todo();
  if (s.listening || s.at_work().position().step != s.view.number || todo.empty()) return nullptr;
  s.task.emplace(s, todo[0]);
  if (s.task->counts()) s.die(Fault::Point::forward, s.view.number);
  s.work.at("a rank gradient", s.now());
  return &*s.task;
}

void Session::give_up() {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  s.task.reset();
  s.member.replica_exchange().end();
  s.work.at("", s.now());
}

void Session::Task::reads(Tensor& input) {
  const Lock lock(session_.mutex);
  session_.flip(Fault::Flips::input, session_.view.number, {&input, 1}, {{"vrank", vrank_}});
}

bool Session::Task::named() const {
  Impl& s = session_;
  return !s.replay && s.member.gradients().owns(vrank_) &&
         names_rank_gradient(s.options.ledger, s.view.number, vrank_, s.options.member.vranks);
}

bool Session::Task::compared() const { return session_.at_work().audit().compares(session_.view.number, vrank_); }

// The rank gradient may be passed on early if it is the last one of this worker and others wait for it. With ZeRO's
// second stage all are, and one that is computed for an audit is only digested.
GradientSink::Plan Session::Task::plan() {
  Impl& s = session_;
  const Lock lock(s.mutex);
  const bool stays = s.at_work().gradients().stay_on_device() && !begun_.together;
  const StepGradients& gradients = s.at_work().gradients();
  const bool opens = s.at_work().position().step == s.view.number && !(stays && work_follows_) && !stale() &&
                     (gradients.opens(vrank_) || (gradients.by_rank() && !counts_));
  passes_on_ = opens && gradients.by_rank();
  digests_ = passes_on_ && (named() || compared());
  gradient_digests_.clear();
  statistics_digests_.clear();
  return {.place = stays ? Place::device : Place::cpu, .receiver = opens ? this : nullptr};
}

// Tensors that were passed on cannot be taken back, and other members do not repeat their passes.
bool Session::Task::make_room() {
  const Lock lock(session_.mutex);
  return planned().place == Place::device && planned().receiver == nullptr && !begun_.together &&
         session_.at_work().gradients().move_to_cpu();
}

void Session::Task::finish(RankFacts facts) {
  Impl& s = session_;
  const double seconds = this->seconds();
  Lock lock(s.mutex);
  ++s.gradients_computed;
  RankGradient gradient = passes_on_ ? RankGradient{.facts = std::move(facts)} : take(std::move(facts));
  if (!opened_.empty()) {
    SideQueue::join(opened_[0].device(), SideQueue::Of::gradients);
    gradient.gradients = std::move(opened_);
    gradient.batch_statistics = std::move(opened_statistics_);
  }
  s.flip(Fault::Flips::gradient, s.view.number, gradient.gradients, {{"vrank", vrank_}});
  const bool named = this->named(), compared = this->compared();
  lock.unlock();
  if (passes_on_ ? digests_ : (named && !gradient.gradients.empty()) || compared) digest(gradient, named, compared);
  lock.lock();
  if (begun_.together) s.member.replica_exchange().end();
  s.work.at("", s.now());
  if (stale()) return;
  if (opened_passes_ && !s.at_work().gradients().has_open()) gradient.gradients = copies(gradient.gradients);
  if (passes_on_) s.member.gradients().close(s.view.number, vrank_, std::move(gradient), seconds);
  else s.at_work().gradients().add(s.view.number, vrank_, std::move(gradient), seconds);
  s.flush();
}

// Digests the gradient for the ledger, if it is named there, and for an audit, if it is compared.
void Session::Task::digest(RankGradient& gradient, bool named, bool compared) {
  const Activity activity("digests");
  if (!gradient.gradients.empty()) {
    std::vector<Tensor> own;
    std::ranges::copy_if(gradient.gradients, std::back_inserter(own), &Tensor::defined);
    const std::vector<TensorDigest> digests = digest_tree(own);
    auto next = digests.begin();
    for (const Tensor& tensor : gradient.gradients)
      gradient_digests_.push_back(tensor.defined() ? (next++)->digest : Digest{});
    for (const TensorDigest& tensor : digest_tree(gradient.batch_statistics))
      statistics_digests_.push_back(tensor.digest);
  }
  if (begun_.together && !gradient_digests_.empty())
    session_.replica.complete(gradient_digests_, session_.member.layout());
  std::vector<Digest> tensors = gradient_digests_;
  tensors.insert(tensors.end(), statistics_digests_.begin(), statistics_digests_.end());
  TensorsDigest digested = digest_in_order(tensors);
  if (compared) {
    RankGradient whole{.facts = gradient.facts};
    if (!tensors.empty()) whole.facts.gradient = digested.digest;
    gradient.digest = digest_of(whole);
  }
  if (named && !tensors.empty())
    digest_rank_gradient(gradient.facts, std::move(digested), session_.view.number, session_.options.ledger,
                         session_.options.member.vranks);
}

void Session::Task::open(int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) {
  Impl& s = session_;
  const SideQueue side(batch_statistics.empty() ? Device{} : batch_statistics[0].device(), SideQueue::Of::gradients);
  side.follow(since);
  if (since) batch_statistics = copies(batch_statistics);
  if (digests_)
    for (const TensorDigest& tensor : digest_tree(batch_statistics)) statistics_digests_.push_back(tensor.digest);
  const Lock lock(s.mutex);
  if (stale()) return;
  if (!passes_on_) opened_statistics_ = batch_statistics;
  s.member.gradients().open(s.view.number, vrank_, count, batch_statistics);
  s.flush();
}

// Reduces buckets here, between two kernels of the backward pass: a parallel thread would only take processors from it.
// Buckets of a group of GPUs are passed to the group as it makes progress.
void Session::Task::put(size_t gradient, Tensor value, const Mark& since) {
  Impl& s = session_;
  const Activity activity("reduction");
  const Clock::time_point began = Clock::now();
  const SideQueue side(value.device(), SideQueue::Of::gradients);
  side.follow(since);
  Lock lock(s.mutex);
  s.flip(Fault::Flips::gradient, s.view.number, {&value, 1}, {{"vrank", vrank_}});
  if (digests_) {
    lock.unlock();
    gradient_digests_.resize(std::max(gradient_digests_.size(), gradient + 1));
    gradient_digests_[gradient] = digest_tree({&value, 1})[0].digest;
    lock.lock();
  }
  if (!passes_on_) {
    opened_.resize(std::max(opened_.size(), gradient + 1));
    opened_[gradient] = value;
  }
  opened_passes_ = since != nullptr;
  if (stale()) return;
  s.member.gradients().put(static_cast<int>(gradient), std::move(value), opened_passes_);
  s.flush();
  while (s.member.reduction().work()) s.flush();
  began_ += Clock::now() - began;  // excluded from the time of a gradient
}

}  // namespace elinvar
