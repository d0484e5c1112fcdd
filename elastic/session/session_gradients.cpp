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
  // The network has a thread of its own, which needs some time, on a busy machine much of it, to send what was passed
  // to it before.
  constexpr std::chrono::milliseconds kSending{100};
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
  if (begun_.together && session_.replica.several()) return session_.replica;
  return local_shards();
}

bool Session::Task::stale() const { return session_.at_work().gradients().stale(vrank_, begun_); }

// The time in which this worker alone would compute the gradient.
double Session::Task::seconds() const {
  const std::chrono::duration<double> seconds = Clock::now() - began_;
  if (!begun_.together) return seconds.count();
  return (seconds_ + session_.replica.worked(seconds)) / session_.replica.portion();
}

Session::Task* Session::next() {
  Impl& s = *impl_;
  Lock lock(s.mutex);
  const auto left = [&] {
    if (s.listening || s.at_work().position().step != s.view.number) return std::vector<int>();
    return s.at_work().gradients().todo();
  };
  // In another generation than that of begin(), others expect digests of all rank gradients, and a rank gradient that
  // lacks parameters could not be completed.
  const bool divided = !s.replay && s.member.replica().divided();
  const bool fetches = !s.replay && s.state.shards && s.state.shards->fetches();
  const bool over = (divided && !s.member.stage_exchange().going()) || (fetches && !s.member.parameter_fetch().going());
  if (over && !left().empty()) throw StepOver();
  if (divided && s.member.replica().staged() && !s.pipeline && !left().empty()) s.begin_pipeline();
  // Rank gradients of others that have come meanwhile would wait in memory for the end of the step.
  if (!s.replay && s.member.gradients().by_rank()) {
    const Activity activity("reduction");
    while (s.member.reduction().work()) s.flush();
  }
  if (s.pipeline)
    if (Task* const pass = s.next_pass()) return pass;
  std::vector<int> todo = left();
  const bool counts = !todo.empty() && s.at_work().gradients().counts(todo[0]);
  if (!counts && !s.undigested.empty()) {
    s.complete_digests(lock);
    todo = left();
  }
  if (todo.empty()) return nullptr;
  s.task.emplace(s, todo[0]);
  if (s.task->counts()) s.die(Fault::Point::forward, s.view.number);
  s.work.at("a rank gradient", s.now());
  return &*s.task;
}

void Session::give_up() {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  s.task.reset();
  s.pipeline.reset();
  s.undigested.clear();
  s.member.replica_exchange().end();
  s.member.stage_exchange().end();
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
// second stage all are, and one that is computed for an audit is only digested. A group of GPUs makes one transfer
// after another, so it adds up nothing while members of a replica still exchange values in it. Where members keep rank
// gradients beyond a fence, one whose score fetches averages is not passed on: the fence would end the task with a part
// of it.
GradientSink::Plan Session::Task::plan() {
  Impl& s = session_;
  const Lock lock(s.mutex);
  const bool stays = s.at_work().gradients().stay_on_device();
  const StepGradients& gradients = s.at_work().gradients();
  // The gradients of another one come between those of several runs of segments.
  const bool mixed = pass_ && s.member.replica().place().segments.size() > 1;
  const bool fetches = work_follows_ && !gradients.by_rank() && s.state.shards && s.state.shards->averages();
  const bool waits = fetches || (stays && (work_follows_ || begun_.together));
  const bool opens = s.at_work().position().step == s.view.number && !waits && !stale() && !mixed &&
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
  if (!computes_) {
    const Lock lock(s.mutex);
    s.member.replica_exchange().end();
    s.work.at("", s.now());
    if (!stale()) s.member.gradients().attach(vrank_, std::move(facts.attached));
    return;
  }
  const double seconds = this->seconds();
  Lock lock(s.mutex);
  if (pass_) s.pipeline->running = nullptr;
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
  if (named || compared) digest(gradient);
  lock.lock();
  if (begun_.together) s.member.replica_exchange().end();
  s.work.at("", s.now());
  if (stale()) return;
  if (named || compared) {
    std::vector<Digest> tensors = std::move(gradient_digests_);
    if (begun_.together && gradient.facts.samples > 0)
      tensors.resize(static_cast<size_t>(s.member.layout().gradients()));
    tensors.insert(tensors.end(), statistics_digests_.begin(), statistics_digests_.end());
    if (begun_.together) s.share_digests({vrank_, named, compared, gradient.facts, std::move(tensors)});
    else gradient.digest = s.digest_rank_gradient(gradient.facts, tensors, named, compared);
  }
  if (opened_passes_ && !s.at_work().gradients().has_open()) gradient.gradients = copies(gradient.gradients);
  if (passes_on_) s.member.gradients().close(s.view.number, vrank_, std::move(gradient), seconds);
  else s.at_work().gradients().add(s.view.number, vrank_, std::move(gradient), seconds);
  s.flush();
}

// Digests the tensors that this member has, unless they were digested as they were passed on.
void Session::Task::digest(const RankGradient& gradient) {
  const Activity activity("digests");
  const auto digests_of_all = [](const std::vector<Tensor>& tensors) {
    std::vector<Tensor> own;
    std::ranges::copy_if(tensors, std::back_inserter(own), &Tensor::defined);
    const std::vector<TensorDigest> digests = digest_tree(own);
    auto next = digests.begin();
    std::vector<Digest> all;
    for (const Tensor& tensor : tensors) all.push_back(tensor.defined() ? (next++)->digest : Digest{});
    return all;
  };
  if (!passes_on_) gradient_digests_ = digests_of_all(gradient.gradients);
  if (!passes_on_) statistics_digests_ = digests_of_all(gradient.batch_statistics);
}

std::optional<Digest> Session::Impl::digest_rank_gradient(RankFacts& facts, std::span<const Digest> tensors, bool named,
                                                          bool compared) const {
  TensorsDigest in_order = digest_in_order(tensors);
  std::optional<Digest> digest;
  if (compared) {
    RankGradient whole{.facts = facts};
    if (!tensors.empty()) whole.facts.gradient = in_order.digest;
    digest = digest_of(whole);
  }
  if (named && !tensors.empty())
    elinvar::digest_rank_gradient(facts, std::move(in_order), view.number, options.ledger, options.member.vranks);
  return digest;
}

void Session::Task::open(int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) {
  Impl& s = session_;
  // Those of other stages' segments are undefined; then all are on the CPU.
  const bool here = !batch_statistics.empty() && batch_statistics[0].defined();
  const SideQueue side(here ? batch_statistics[0].device() : Device{}, SideQueue::Of::gradients);
  side.follow(since);
  if (since) batch_statistics = copies(batch_statistics);
  if (digests_)
    for (const Tensor& tensor : batch_statistics)
      statistics_digests_.push_back(tensor.defined() ? digest_tree({&tensor, 1})[0].digest : Digest{});
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
