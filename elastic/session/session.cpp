#include "elastic/session/session.h"

#include <algorithm>

#include "elastic/checkpoint/snapshot.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/checkpoint/whole_state.h"
#include "elastic/ledger/step_facts.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

void Session::Impl::failed(std::exception_ptr failure) {
  const Lock lock(mutex);
  if (!error) error = std::move(failure);
  changed.notify_all();
}

StateDict Session::Impl::whole_state(int64_t step, const ScalingState& scaling_state) const {
  return elinvar::whole_state(state.view(), step, adaptive() ? std::optional(scaling_state) : std::nullopt);
}

// In what the update has just made: the tensors of the state whose names begin so.
void Session::Impl::flip_state(Fault::Flips what, const std::string& prefix) {
  std::vector<Tensor> live, tensors;
  for (const auto& [name, tensor] : state.view())
    if (name.starts_with(prefix)) live.push_back(tensor);
  tensors = live;
  const Lock lock(mutex);
  if (!flip(what, work_step, tensors, nlohmann::json::object())) return;
  for (size_t i = 0; i < live.size(); ++i)
    if (!tensors[i].shares_storage(live[i])) copy(tensors[i], live[i]);
}

void Session::Impl::wait(Lock& lock) {
  const Activity activity("waiting for workers");
  work.looked();
  changed.wait(lock);
}

// No message comes when it is done, but perhaps one that there will be no more of it.
void Session::Impl::wait_for_group(Lock& lock) {
  constexpr std::chrono::microseconds kLook{50};
  const Activity activity("waiting for workers");
  if (!group_since || member.reduction().progress() != group_progress) group_since = Clock::now();
  group_progress = member.reduction().progress();
  if (Clock::now() > *group_since + options.group_patience)
    member.groups().stalled(
        fmt::format("the sums have not come within {:.3g} s: a member or a link hangs; NCCL_DEBUG=INFO "
                    "makes NCCL say more, run.data_plane = \"host\" does without it",
                    options.group_patience.count()));
  work.looked();
  changed.wait_for(lock, kLook);
}

void Session::Impl::wait_for_copies(Lock& lock, std::optional<Clock::time_point> since) {
  work.at(kCopying, now());
  while (!copier.copied()) {
    const Activity activity("waiting for a checkpoint");
    lock.unlock();
    copier.wait(since);
    lock.lock();
  }
  work.at("", now());
}

// With the lock held, which is not while the state is restored. From a checkpoint that cannot be seen, or is damaged,
// nothing follows.
void Session::Impl::begin_replay(Lock& lock) {
  const int64_t from = member.audit().begin_replay(), to = member.position().completed;
  // From here on nobody gets parts of what is no more the member's state. None of the steps is the last.
  replay.emplace(
      MemberOptions{
          .vranks = options.member.vranks, .steps = to + 1, .bucket_elements = options.member.bucket_elements},
      from);
  wait_for_copies(lock);
  work.at("loading the state", now());
  lock.unlock();
  bool restored = false;
  try {
    restored = state.restore(from).has_value();
  } catch (const Failure&) {
  }
  lock.lock();
  work.at("", now());
  if (!restored) replay.reset();
}

// Of a newcomer. With the lock held, which is not while it is loaded.
void Session::Impl::load(Lock& lock) {
  StateLoad load = member.take_load();
  wait_for_copies(lock);
  work.at("loading the state", now());
  lock.unlock();
  bool done = true;
  if (load.restore) {
    std::optional<ScalingState> scaling_state = ScalingState{};
    if (*load.restore > 0 || !pristine) scaling_state = state.restore(*load.restore);
    done = scaling_state.has_value();
    if (done) pristine = *load.restore == 0;
    if (done) load.scaling_state = pristine ? ScalingState{.batch = options.member.scaling.batch} : *scaling_state;
  } else {
    pristine = false;
    fill(whole_state(load.step, load.scaling_state), load.pieces);
    // A newcomer is the last member, beside those who gave it the state.
    const int members = load.pieces.front().parts + 1;
    want_memory(members - 1, members);
    load.pieces.clear();
    touch_memory();
  }
  lock.lock();
  work.at("", now());
  if (done) member.loaded(load);
  else member.cannot_load(load);
  flush();
}

// A newcomer's first step has in memory a leaf's results, another's, the sums of all and the last result. It touches
// this, and gives it back to the heap, while nobody waits for it.
void Session::Impl::touch_memory() { SnapshotMemory().prepare(4 * leaf_bytes); }

// For the next checkpoint.
void Session::Impl::want_memory(int part, int parts) {
  copier.prepare(SnapshotMemory::bytes_for(part_of(whole_state(0, {}), part, parts)));
}

Session::Session(SessionOptions options, std::unique_ptr<Transport>&& transport, StateAccess state)
    : impl_(std::make_unique<Impl>(std::move(options), *transport, std::move(state))) {
  impl_->owned = std::move(transport);
}
Session::~Session() = default;

int64_t Session::step() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().position().step;
}

bool Session::last() const { return impl_->last; }
bool Session::replays() const { return impl_->replay.has_value(); }

ScalingState Session::scaling_state() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().scaling().current();
}

bool Session::knows_layout() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().reduction().knows_layout();
}

void Session::learn_layout(const RankGradient& leaf) {
  int64_t bytes = 0;
  for (const std::vector<Tensor>* tensors : {&leaf.gradients, &leaf.batch_statistics})
    for (const Tensor& tensor : *tensors) bytes += tensor.bytes();
  const Lock lock(impl_->mutex);
  impl_->leaf_bytes = bytes;
  impl_->at_work().learn_layout(leaf);
  impl_->flush();
}

bool Session::begin() {
  Impl& s = *impl_;
  Lock lock(s.mutex);
  s.work.at("", s.now());
  s.reduced = {};
  while (true) {
    s.rethrow();
    if (s.replay && s.replay->member().position().step == s.member.position().step) s.replay.reset();
    const Member::Next next = s.replay && !s.member.outcome() ? Member::Next::leaves : s.member.next();
    s.flush();
    switch (next) {
      case Member::Next::done:
        return false;
      case Member::Next::wait:
        s.wait(lock);
        continue;
      case Member::Next::leaves:
      case Member::Next::copy:
      case Member::Next::layout:
        s.listening = next != Member::Next::leaves;
        if (s.member.position().active() && s.member.position().number() != s.wanted_for) {
          s.wanted_for = s.member.position().number();
          s.want_memory(s.member.position().index, s.member.position().members());
        }
        s.work_step = s.at_work().position().step;
        s.last = s.at_work().position().last();
        s.work.at("preparing", s.now());
        return true;
      case Member::Next::replay:
        s.begin_replay(lock);
        continue;
      case Member::Next::load:
        s.load(lock);
        continue;
    }
  }
}

void Session::works_on(const std::string& what) {
  const Lock lock(impl_->mutex);
  impl_->work.at(what, impl_->now());
}

bool Session::reduce() {
  Impl& s = *impl_;
  const Activity activity("reduction");
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  if (!s.listening) {
    std::optional<Digest> state;
    StateDigests parts;
    if (s.at_work().digest_due()) {
      const int64_t step =
          std::min(s.member.position().step, s.member.position().known_steps().value_or(s.member.position().step));
      const ScalingState scaling_state = s.member.scaling().made();
      const Activity digesting("digests");
      s.work.at("the state's digest", s.now());
      lock.unlock();
      StateSum sum = state_sum(digests_of(s.whole_state(step, scaling_state)));
      state = sum.digest;
      parts = std::move(sum.parts);
      lock.lock();
    }
    s.at_work().contribute(state, parts);
    s.flush();
  }
  s.work.at("", s.now());
  s.group_since.reset();
  while (true) {
    s.rethrow();
    const Member::Progress progress = s.at_work().reduce();
    s.flush();
    if (progress == Member::Progress::abandoned) return false;
    if (progress == Member::Progress::complete) break;
    if (s.at_work().reduction().transferring()) s.wait_for_group(lock);
    else s.wait(lock);
  }
  const Clock::time_point reduced = Clock::now();
  s.reduce_seconds = std::chrono::duration<double>(reduced - began).count();
  s.wait_for_copies(lock, reduced);
  s.rethrow();
  s.work.at("the update", s.now());
  s.reduced = s.at_work().take_reduced();
  if (s.member.position().members() == 1)
    s.flip(Fault::Flips::reduced, s.work_step, s.reduced.gradients, {});  // no exchange
  const std::string& contradiction = s.reduced.contradiction;
  if (!contradiction.empty())
    elinvar::fail("the members differ after step {}: {}; a machine or its memory is at fault", s.work_step,
                  contradiction);
  if (!s.last && s.reduced.count == 0)
    elinvar::fail("step {}: no target in the whole batch counts, so there is no mean to take", s.work_step + 1);
  if (s.last || s.replay) return true;
  // Here, not after the update: so a GPU is at that while the next step is prepared.
  const Activity digesting("digests");
  lock.unlock();
  s.gradient = digest_in_order(s.reduced.gradients, s.reduced.batch_statistics);
  return true;
}

const Reduced& Session::reduced() const { return impl_->reduced; }

bool Session::leads() const {
  const Lock lock(impl_->mutex);
  return !impl_->replay && impl_->member.position().index == 0;
}

void Session::show(std::string bytes) {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  s.transmit(s.member.position().coordinator, {.generation = s.member.position().number(),
                                               .step = s.work_step + 1,
                                               .payload = messages::Shown{blob_of(std::move(bytes))}});
}

void Session::advance(const StepReport& report) {
  Impl& s = *impl_;
  s.pristine = false;
  if (s.replay) {
    const Lock lock(s.mutex);
    return s.replay->advance();
  }
  if (s.worker_faults.flips_later()) {
    s.flip_state(Fault::Flips::parameter, "model.");
    s.flip_state(Fault::Flips::optimizer, "optimizer.");
  }
  StepFacts facts = facts_of(s.reduced, s.last ? std::nullopt : std::optional(std::move(s.gradient)), s.work_step,
                             s.options.ledger, s.options.member.vranks);
  if (facts.update) facts.update->reduce_seconds = s.reduce_seconds;
  facts.report = report;
  const Lock lock(s.mutex);
  if (s.adaptive()) facts.end = s.member.position().known_steps();
  facts.at = s.now();
  s.work.at("", s.now());
  s.member.advance(std::move(facts));
  s.copier.updated();
  s.flush();
}

int Session::worker() const {
  const Lock lock(impl_->mutex);
  return impl_->member.position().id();
}

const Member::Outcome& Session::outcome() const { return *impl_->member.outcome(); }

void Session::drain() {
  const Lock lock(impl_->mutex);
  impl_->member.drain();
  impl_->flush();
}

void Session::fail(const std::string& reason, int exit_code) {
  const Lock lock(impl_->mutex);
  impl_->member.failed(reason, exit_code);
  impl_->flush();
}

}  // namespace elinvar
