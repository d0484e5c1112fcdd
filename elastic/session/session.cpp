#include "elastic/session/session.h"

#include <algorithm>

#include "elastic/checkpoint/snapshot.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/checkpoint/whole_state.h"
#include "elastic/ledger/step_facts.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/device_memory.h"
#include "tensor/ops/copy.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;

void Session::Impl::failed(std::exception_ptr failure) {
  const Lock lock(mutex);
  if (!error) error = std::move(failure);
  changed.notify_all();
}

StateDict Session::Impl::whole_state(int64_t step, const ScalingState& scaling_state, int zero) const {
  StateDict whole = state.view();
  if (zero > 0)
    for (const TensorLayout& tensor : state.shards->layout(zero)) whole.erase(tensor.name);
  return elinvar::whole_state(whole, step, adaptive() ? std::optional(scaling_state) : std::nullopt);
}

// Flips a bit in the state that the update has just made, in the tensors whose names begin with `prefix`.
void Session::Impl::flip_state(Fault::Flips what, const std::string& prefix) {
  std::vector<Tensor> live, tensors;
  for (const auto& [name, tensor] : state.view())
    if (name.starts_with(prefix)) live.push_back(tensor);
  if (sharded && what == Fault::Flips::optimizer) {
    Lock lock(mutex);
    const std::vector<int> kept = member.values().kept();
    const int zero = member.layout().zero();
    lock.unlock();
    for (const StateSlice& slice : state_of(kept, zero)) live.push_back(slice.values);
  }
  tensors = live;
  const Lock lock(mutex);
  if (!flip(what, view.number, tensors, nlohmann::json::object())) return;
  for (size_t i = 0; i < live.size(); ++i)
    if (!tensors[i].shares_storage(live[i])) copy(tensors[i], live[i]);
}

void Session::Impl::flip_reduced() {
  std::vector<Tensor> gradients = reduced.gradients;
  if (reduced.shards)
    for (const GradientShards::Bucket& bucket : reduced.shards->kept)
      gradients.insert(gradients.end(), bucket.gradients.begin(), bucket.gradients.end());
  const bool flipped = flip(Fault::Flips::reduced, view.number, gradients, {});
  if (!flipped) return;
  size_t at = 0;
  for (Tensor& sum : reduced.gradients) sum = gradients[at++];
  if (reduced.shards)
    for (GradientShards::Bucket& bucket : reduced.shards->kept)
      for (Tensor& sum : bucket.gradients) sum = gradients[at++];
}

void Session::Impl::wait(Lock& lock) {
  const Activity activity("waiting for workers");
  work.looked();
  changed.wait(lock);
}

// No message announces that the group is done, but one may announce that the group has failed.
void Session::Impl::wait_for_group(Lock& lock, int64_t progress) {
  constexpr std::chrono::microseconds kLook{50};
  const Activity activity("waiting for workers");
  if (!group_since || progress != group_progress) group_since = Clock::now();
  group_progress = progress;
  if (Clock::now() > *group_since + options.group_patience)
    member.groups().stalled(
        fmt::format("a transfer has not ended within {:.3g} s: a member or a link hangs; NCCL_DEBUG=INFO "
                    "makes NCCL say more, run.data_plane = \"host\" does without it",
                    options.group_patience.count()));
  work.looked();
  changed.wait_for(lock, kLook);
}

// A transfer of values that others wait for takes tens of microseconds, in which this thread does not sleep. If the
// group fails, the coordinator fences.
bool Session::Impl::wait_for_transfer(Lock& lock, GpuGroup& group, const std::function<bool()>& going) {
  constexpr std::chrono::microseconds kAwake{200};
  const WorkPause pause(work);
  const Clock::time_point asleep = Clock::now() + kAwake;
  group_since.reset();
  std::string why;
  for (rethrow(); going(); rethrow()) {
    const GpuGroup::State transfer = group.complete(why);
    if (transfer == GpuGroup::State::done) return true;
    if (transfer == GpuGroup::State::failed) member.groups().stalled(why);
    flush();
    if (transfer == GpuGroup::State::failed) {
      wait(lock);
    } else if (Clock::now() > asleep) {
      wait_for_group(lock, /*progress=*/0);
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
  return false;
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

// Requires the lock, and releases it while the state is restored. If the checkpoint cannot be seen or is damaged, no
// replay begins.
void Session::Impl::begin_replay(Lock& lock) {
  const int64_t from = member.audit().begin_replay(), to = member.position().completed;
  // From here on no worker gets parts of the state, which is no longer the member's. None of the steps is the last.
  replay.emplace(
      MemberOptions{
          .vranks = options.member.vranks, .steps = to + 1, .bucket_elements = options.member.bucket_elements},
      from);
  wait_for_copies(lock);
  const TimedActivity activity("loading the state");
  lock.unlock();
  bool restored = false;
  try {
    restored = !member.layout().sharded() &&
               state.restore(from, /*zero=*/0).has_value();  // no worker may have room for all shards
  } catch (const Failure&) {
  }
  lock.lock();
  if (!restored) replay.reset();
}

// Loads a newcomer's state. Requires the lock, and releases it while the state is loaded.
void Session::Impl::load(Lock& lock) {
  StateLoad load = member.catching_up().load();
  const int zero = member.layout().zero();
  wait_for_copies(lock);
  const TimedActivity activity("loading the state");
  lock.unlock();
  bool done = true;
  if (load.restore) {
    std::optional<ScalingState> scaling_state = ScalingState{};
    if (view.number > 0) worker_faults.interrupted(view.number);
    if (*load.restore > 0 || !pristine || form_of(load.zero) != form_of(zero))
      scaling_state = state.restore(*load.restore, load.zero);
    done = scaling_state.has_value();
    if (done) pristine = *load.restore == 0;
    if (done) load.scaling_state = pristine ? ScalingState{.batch = options.member.scaling.batch} : *scaling_state;
  } else {
    pristine = false;
    if (state.shards) state.shards->learns(zero);
    fill(whole_state(load.step, load.scaling_state, zero), load.pieces);
    // A newcomer is the last member; the others gave it the state.
    const int members = load.pieces.front().parts + 1;
    want_memory(members - 1, members, zero);
    load.pieces.clear();
    touch_memory();
  }
  lock.lock();
  if (done) options.about.zero = load.restore ? load.zero : zero;
  if (done) member.loaded(load);
  else member.catching_up().cannot_load(load);
  flush();
}

// A newcomer's first step holds in memory the results of one virtual rank, those of another, the sums of all and the
// last result. This touches that memory and returns it to the heap before other workers wait for the newcomer.
void Session::Impl::touch_memory() { SnapshotMemory().prepare(4 * gradient_bytes); }

// Prepares memory for the next checkpoint, if there are any before the end, when gradients need no memory. A newcomer
// has no buckets yet, and assumes that its part of the slices is as large as that of each other member.
void Session::Impl::want_memory(int part, int parts, int zero) {
  if (options.member.checkpoint_every == 0) return;
  int64_t bytes = SnapshotMemory::bytes_for(part_of(whole_state(0, {}, zero), part, parts));
  if (zero > 0 && member.position().active() && member.shards().on()) {
    for (const int bucket : member.shards().provides(member.position().generation->first_step + 1))
      for (const Slice& slice : member.layout().shard_buckets().slices(bucket))
        for (const SliceRange& range : state.shards->ranges(slice, zero))
          bytes += SnapshotMemory::room_for((range.end - range.begin) * int64_t{sizeof(float)});
  } else if (zero > 0) {
    for (const TensorLayout& tensor : state.shards->layout(zero))
      bytes += tensor.numel() * tensor.element_bytes() / parts;
  }
  copier.prepare(bytes);
}

// Warms up with the first virtual rank that has samples.
void Session::Impl::warm_up(Lock& lock) {
  const TimedActivity activity("the first rank gradient");
  for (int vrank = 0; !at_work().layout().known(); vrank = (vrank + 1) % options.member.vranks) {
    const int64_t at = at_work().position().step;
    lock.unlock();
    const RankGradient computed = options.warm_up(at, vrank);
    int64_t bytes = 0;
    for (const std::vector<Tensor>* tensors : {&computed.gradients, &computed.batch_statistics})
      for (const Tensor& tensor : *tensors)
        if (tensor.contiguous()) bytes += tensor.bytes();
    lock.lock();
    gradient_bytes = bytes;
    at_work().learn_layout(computed);
    flush();
  }
}

void Session::Impl::begin_step(Lock& lock, bool listens) {
  listening = listens;
  begun_in = member.position().number();
  if (member.position().active() && member.position().number() != wanted_for) {
    wanted_for = member.position().number();
    want_memory(member.position().index, member.position().members(), member.layout().zero());
  }
  view.number = at_work().position().step;
  view.last = at_work().position().last();
  work.at("preparing", now());
  if (!at_work().layout().known()) warm_up(lock);
  view.replays = replay.has_value();
  view.leads = leads();
  view.worker = member.position().id();
  view.scaling_state = at_work().scaling().current();
  made_before = member.scaling().made();
  pipeline.reset();
  undigested.clear();
  if (!replay && member.replica().divided())
    member.stage_exchange().begin(/*in_group=*/member.replica().staged() && member.groups().agreed());
  sharded = !replay && member.layout().sharded();
  held_with = member.shards().held_with(view.number);
  if (state.shards && (state.shards->fetches() || state.shards->averages())) member.parameter_fetch().begin();
}

void Session::Impl::contribute(Lock& lock) {
  std::optional<Digest> digest;
  StateDigests parts;
  std::vector<messages::StateChunks> chunks;
  if (at_work().gradients().digest_due()) {
    const int64_t made =
        std::min(member.position().step, member.position().known_steps().value_or(member.position().step));
    const ScalingState scaling_state = member.scaling().made();
    const int zero = member.shards().held_with(made);
    const std::vector<int> buckets = zero > 0 ? member.shards().digested(made) : std::vector<int>();
    const TimedActivity activity("the state's digest");
    const int64_t generation = member.position().number();
    lock.unlock();
    TensorDigests tensors = digests_of(whole_state(made, scaling_state, zero));
    StateSum sum = state_sum(tensors);
    digest = sum.digest;
    parts = std::move(sum.parts);
    if (!buckets.empty()) chunks = state_chunks(buckets, zero);
    lock.lock();
    // Another generation may deal the buckets otherwise: begin again.
    if (sharded && member.position().number() != generation) return flush();
    digests = std::move(tensors);
    digested = view.number;
  }
  at_work().gradients().contribute(digest, parts, std::move(chunks));
  flush();
}

bool Session::Impl::wait_for_sums(Lock& lock) {
  work.at("", now());
  group_since.reset();
  while (true) {
    rethrow();
    const Member::Progress progress = at_work().reduce();
    flush();
    if (progress == Member::Progress::abandoned) return false;
    if (progress == Member::Progress::complete) return true;
    if (const auto of_group = at_work().reduction().group_progress()) wait_for_group(lock, *of_group);
    else wait(lock);
  }
}

Session::Session(SessionOptions options, std::unique_ptr<Transport>&& transport, StateAccess state)
    : impl_(std::make_unique<Impl>(std::move(options), *transport, std::move(state))) {
  impl_->owned = std::move(transport);
}

Session::~Session() {
  if (activity::clock == &impl_->work) activity::clock = nullptr;
}

const StepView& Session::step() const { return impl_->view; }

bool Session::begin() {
  Impl& s = *impl_;
  activity::clock = &s.work;
  // Here and not where it is told: the listener must never wait for a device.
  const int64_t gpu_peak = s.options.device == Device{} ? 0 : memory_of(s.options.device).peak_in_use;
  Lock lock(s.mutex);
  s.gpu_peak = gpu_peak;
  s.work.at("", s.now());
  s.reduced = {};
  while (true) {
    s.rethrow();
    if (s.replay && s.replay->member().position().step == s.member.position().step) s.replay.reset();
    const Member::Next next = s.replay && !s.member.outcome() ? Member::Next::gradients : s.member.next();
    s.flush();
    switch (next) {
      case Member::Next::done:
        return false;
      case Member::Next::wait:
        s.wait(lock);
        continue;
      case Member::Next::layout:
        s.warm_up(lock);
        continue;
      case Member::Next::gradients:
      case Member::Next::copy:
        s.begin_step(lock, /*listens=*/next == Member::Next::copy);
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

const Reduced* Session::reduce() {
  Impl& s = *impl_;
  const Activity activity("reduction");
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  // Before a step goes on in another generation, begin() asks what that one wants first.
  if (!s.replay && s.member.position().number() != s.begun_in) return nullptr;
  if (!s.listening) s.contribute(lock);
  if (!s.wait_for_sums(lock)) return nullptr;
  if (!s.view.last) s.die(Fault::Point::trailer, s.view.number);
  const Clock::time_point reduced = Clock::now();
  s.reduce_seconds = std::chrono::duration<double>(reduced - began).count();
  s.wait_for_copies(lock, reduced);
  s.rethrow();
  s.work.at("the update", s.now());
  s.reduced = s.at_work().reduction().take_reduced();
  s.view.leads = s.leads();
  if (s.member.position().members() == 1) s.flip_reduced();  // nothing is exchanged
  const std::string& contradiction = s.reduced.contradiction;
  if (!contradiction.empty())
    elinvar::fail("the members differ after step {}: {}; a machine or its memory is at fault", s.view.number,
                  contradiction);
  if (!s.view.last && s.reduced.count == 0)
    elinvar::fail("step {}: no target in the whole batch counts, so there is no mean to take", s.view.number + 1);
  if (s.view.last && s.sharded) s.compose_digests(lock);
  if (!s.view.last) s.pristine = false;  // also if the update is interrupted
  if (s.view.last || s.replay) return &s.reduced;
  // Digests here and not after the update, so that a GPU computes the digests while the next step is prepared.
  const Activity digesting("digests");
  if (s.sharded) {
    s.change_shards(lock);
    s.compose_digests(lock);
    return &s.reduced;
  }
  lock.unlock();
  s.gradient = digest_in_order(s.reduced.gradients, s.reduced.batch_statistics);
  return &s.reduced;
}

void Session::show(std::string bytes) {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  s.transmit(s.member.position().coordinator, {.generation = s.member.position().number(),
                                               .step = s.view.number + 1,
                                               .payload = messages::Shown{blob_of(std::move(bytes))}});
}

void Session::measured(std::vector<double> segment_seconds) {
  Impl& s = *impl_;
  const Lock lock(s.mutex);
  const bool first = s.segment_seconds.empty() && !segment_seconds.empty();
  s.segment_seconds = std::move(segment_seconds);
  if (!first) return;
  s.heartbeat();
  s.flush();
}

void Session::advance(const StepReport& report) {
  Impl& s = *impl_;
  if (s.replay) {
    const Lock lock(s.mutex);
    return s.replay->advance();
  }
  if (s.worker_faults.flips_later()) {
    s.flip_state(Fault::Flips::parameter, "model.");
    s.flip_state(Fault::Flips::optimizer, "optimizer.");
  }
  StepFacts facts = facts_of(s.reduced, s.view.last ? std::nullopt : std::optional(std::move(s.gradient)),
                             s.view.number, s.options.ledger, s.options.member.vranks);
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
