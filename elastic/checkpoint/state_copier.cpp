#include "elastic/checkpoint/state_copier.h"

#include <algorithm>

#include "elastic/checkpoint/part_contents.h"
#include "elastic/checkpoint/part_stream.h"
#include "elastic/checkpoint/state_parts.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tensor/base/threads.h"
#include "tensor/stream.h"

namespace elinvar {

using Lock = std::unique_lock<std::mutex>;

constexpr int kMostWriting = 2;  // checkpoint copies that are not on disk yet
constexpr std::chrono::seconds kStreamPatience{60}, kFinishPatience{60};
constexpr int64_t kSlices = 4;  // few, because results of steps wait for a learner that does not have its state yet

StateCopier::StateCopier(World world, PeerId coordinator, Clock::duration rest)
    : world_(std::move(world)), rest_(rest), coordinator_(coordinator) {
  // The threads' names let a benchmark measure their processor time (bench elastic).
  const auto start = [this](auto body) {
    return start_thread("copier", [this, body](const std::stop_token& stop) { guarded([&] { body(stop); }); });
  };
  copier_ = start([this](const std::stop_token& stop) { copy(stop); });
  sender_ = start([this](const std::stop_token& stop) { pass_on(stop, to_send_); });
  writer_ = start([this](const std::stop_token& stop) { pass_on(stop, to_write_); });
}

StateCopier::~StateCopier() { finish(); }

void StateCopier::guarded(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    give_up();
    world_.failed(std::current_exception());
  }
}

void StateCopier::give_up() {
  const Lock lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

void StateCopier::finish() {
  {
    Lock lock(mutex_);
    finishing_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, kFinishPatience, [&] { return (parts_.empty() && saving_ == 0) || given_up_; });
  }
  for (std::jthread* thread : {&copier_, &sender_, &writer_}) thread->request_stop();
  for (std::jthread* thread : {&copier_, &sender_, &writer_})
    if (thread->joinable()) thread->join();
}

void StateCopier::add(StatePart part) {
  const Lock lock(mutex_);
  parts_.push_back(std::move(part));
  ++uncopied_;
  changed_.notify_all();
}

void StateCopier::prepare(int64_t bytes) {
  const Lock lock(mutex_);
  wanted_ = bytes;
  changed_.notify_all();
}

void StateCopier::updated() {
  const Lock lock(mutex_);
  ++updates_;
  if (saving_ > 0) changed_.notify_all();
}

bool StateCopier::copied() const {
  const Lock lock(mutex_);
  return uncopied_ == 0 || given_up_;
}

void StateCopier::wait(std::optional<Clock::time_point> since) {
  Lock lock(mutex_);
  waits_since_ = since;
  changed_.wait(lock, [&] { return uncopied_ == 0 || given_up_; });
  waits_since_.reset();
}

void StateCopier::follow(PeerId coordinator) {
  const Lock lock(mutex_);
  coordinator_ = coordinator;
  changed_.notify_all();
}

void StateCopier::piece_taken(int64_t step, const messages::Taken& taken) {
  const Lock lock(mutex_);
  if (step != streaming_.step || taken.part != streaming_.part || taken.parts != streaming_.parts) return;
  streaming_.error = taken.error;
  if (taken.error.empty()) streaming_.taken = taken.offset;
  changed_.notify_all();
}

void StateCopier::copy(const std::stop_token& stop) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  while (true) {
    StatePart part;
    {
      Lock lock(mutex_);
      // A part of a checkpoint waits for a disk that needs longer than the interval between checkpoints, or memory
      // would run out. Parts for other workers do not wait behind it.
      auto next = parts_.end();
      changed_.wait(lock, stop, [&] {
        next = std::find_if(parts_.begin(), parts_.end(), [&](const StatePart& candidate) {
          return candidate.to != 0 || writing_ < kMostWriting || given_up_;
        });
        return next != parts_.end() || (parts_.empty() && prepared_ < wanted_);
      });
      if (next == parts_.end() && !parts_.empty()) next = parts_.begin();  // the end has come
      if (parts_.empty() && stop.stop_requested()) return;
      if (parts_.empty()) {
        const int64_t bytes = prepared_ = wanted_;
        lock.unlock();
        memory_.prepare(bytes);
        continue;
      }
      part = std::move(*next);
      parts_.erase(next);
      ++saving_;
      if (part.to == 0) ++writing_;
    }
    const Activity activity("copying the state");
    const Clock::time_point began = Clock::now();
    const StateDict whole = part.move ? StateDict() : world_.state(part);
    std::vector<StateSlice> slices;
    if (world_.slices && !part.buckets.empty()) slices = world_.slices(part);
    StateDict tensors = contents_of(part_of(whole, part.part, part.parts), slices).tensors;
    if (!part.last) tensors = memory_.copy(tensors);
    for (auto& [name, tensor] : tensors) tensor = tensor.to(Device{}).to_contiguous();
    for (StateSlice& slice : slices)
      slice.values = tensors.extract(slice_name(slice.tensor, slice.begin, slice.end)).mapped();
    const std::optional<Digest> attested = part.attested ? std::optional(digest(whole)) : std::nullopt;
    const Lock lock(mutex_);
    if (!part.last) --uncopied_;
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> copying = now - began,
                                        waiting = waits_since_ ? now - std::max(began, *waits_since_) : copying * 0;
    std::deque<Copied>& queue = part.to == 0 ? to_write_ : to_send_;
    queue.push_back({.part = std::move(part),
                     .tensors = std::move(tensors),
                     .slices = std::move(slices),
                     .state = attested,
                     .copy_seconds = copying.count(),
                     .wait_seconds = waiting.count(),
                     .updates = updates_});
    changed_.notify_all();
  }
}

// Sends or saves the copies.
void StateCopier::pass_on(const std::stop_token& stop, std::deque<Copied>& queue) {
  CpuStream alone(1);
  const StreamScope scope(alone);
  while (true) {
    Copied copied;
    {
      Lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !queue.empty(); });
      if (queue.empty()) return;
      copied = std::move(queue.front());
      queue.pop_front();
    }
    const Activity activity("saving the state");
    const bool checkpoint = copied.part.to == 0, last = copied.part.last;
    if (checkpoint) save(copied);
    else if (copied.part.move) world_.move(copied.part, copied.slices);
    else give(copied);
    copied = {};
    const Lock lock(mutex_);
    --saving_;
    if (last) --uncopied_;
    if (checkpoint) --writing_;
    changed_.notify_all();
  }
}

void StateCopier::give(const Copied& copied) {
  const StatePart& part = copied.part;
  int64_t whole = 0;
  for (const auto& [name, tensor] : copied.tensors) whole += tensor.bytes();
  int64_t updates = copied.updates, slice = whole;  // the step in which it was copied has had its slice
  send_state(copied.tensors, part, [&](messages::StatePieces pieces) {
    if (part.throttled && slice > whole / kSlices) {
      updates = rest(part, updates);
      slice = 0;
    }
    for (const Blob& blob : pieces.bytes) slice += static_cast<int64_t>(blob.bytes);
    world_.send(part.to, part.step, std::move(pieces));
  });
  world_.send(0, part.step,
              messages::StateSent{.peer = part.to,
                                  .part = part.part,
                                  .parts = part.parts,
                                  .copy_seconds = copied.copy_seconds,
                                  .wait_seconds = copied.wait_seconds});
}

// Waits until the loop has made another step, but at most `rest_`, because steps may be long, and not if other parts
// wait behind this one. Returns the number of updates.
int64_t StateCopier::rest(const StatePart& part, int64_t updates) {
  Lock lock(mutex_);
  const auto hurry = [&] {
    return finishing_ || given_up_ || std::any_of(to_send_.begin(), to_send_.end(), [&](const Copied& next) {
             return !next.part.throttled || next.part.to == part.to;
           });
  };
  changed_.wait_for(lock, rest_, [&] { return updates_ != updates || hurry(); });
  return updates_;
}

void StateCopier::save(const Copied& copied) {
  const StatePart& part = copied.part;
  const std::filesystem::path directory = world_.directory();
  messages::Saved saved{.part = part.part,
                        .parts = part.parts,
                        .digests = to_text(digests_of(copied.tensors)),
                        .slices = slice_digests(copied.slices),
                        .state = copied.state,
                        .streamed = directory.empty(),
                        .copy_seconds = copied.copy_seconds,
                        .wait_seconds = copied.wait_seconds};
  try {
    const CheckpointPart written =
        directory.empty() ? stream(copied)
                          : CheckpointStore(directory / "checkpoints")
                                .write_part(part.step, part_file(part.part, part.parts), copied.tensors, copied.slices);
    saved.file = written.file;
    saved.bytes = written.bytes;
    saved.digest = written.digest;
  } catch (const std::exception& failure) {
    saved.error = reason_of(failure);
  }
  world_.send(0, part.step, std::move(saved));
}

// Streams the part to the coordinator, which writes it for this worker (elastic/checkpoint/part_stream.h).
CheckpointPart StateCopier::stream(const Copied& copied) {
  const StatePart& part = copied.part;
  PeerId coordinator;
  {
    const Lock lock(mutex_);
    coordinator = coordinator_;
    streaming_ = {.step = part.step, .part = part.part, .parts = part.parts};
  }
  const auto send = [&](messages::FilePiece piece, int64_t end) {
    {
      Lock lock(mutex_);
      const bool free = changed_.wait_for(lock, kStreamPatience, [&] {
        return end - streaming_.taken <= kPartWindow || !streaming_.error.empty() || coordinator_ != coordinator;
      });
      if (!streaming_.error.empty()) fail("{}", streaming_.error);
      if (!free || coordinator_ != coordinator) fail("the coordinator takes no more of part {}", part.part);
    }
    world_.send(coordinator, part.step, std::move(piece));
  };
  return send_part(part.part, part.parts, copied.tensors, send, copied.slices);
}

}  // namespace elinvar
