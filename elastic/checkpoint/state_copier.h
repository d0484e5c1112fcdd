#pragma once
// Parts of the state on their way to a checkpoint or a learner: copied by a thread of their own while the loop computes
// leaves and leaves the state as it is, then written or sent by two others, which may take as long as disk and network
// need. Where there is nothing to copy the memory for the next copy is made ready.
//
// A learner that nobody waits for is sent its part in slices, one a step: whoever computes on the same core then loses
// little in each.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/snapshot.h"
#include "elastic/protocol/member.h"

namespace elinvar {

class StateCopier {
 public:
  using Clock = std::chrono::steady_clock;
  // Called from the threads of the copier, which hold no lock then.
  struct World {
    std::function<StateDict(const StatePart& part)> state;  // whole, as it is at its step: views
    std::function<std::filesystem::path()> directory;       // of the run; "": parts are streamed to the coordinator
    // Something about the state after `step` updates; peer 0: to the coordinator.
    std::function<void(PeerId peer, int64_t step, Payload payload)> send;
    std::function<void(std::exception_ptr)> failed;
  };
  // `rest`: the longest time between two slices.
  StateCopier(World world, PeerId coordinator, Clock::duration rest = std::chrono::seconds(2));
  ~StateCopier();
  StateCopier(const StateCopier&) = delete;
  StateCopier& operator=(const StateCopier&) = delete;

  void add(StatePart part);
  void prepare(int64_t bytes);                             // for the next part
  void updated();                                          // the loop has made a step
  bool copied() const;                                     // nothing needs the state as it is any more
  void wait(std::optional<Clock::time_point> since = {});  // until then; the loop stands still for it since this time
  void taken(int64_t step, const messages::Taken& taken);  // the coordinator's word on what was streamed
  void follow(PeerId coordinator);                         // another one: what was streamed so far is of no use to it
  void give_up();                                          // nobody waits any more
  void finish();  // returns when all is saved and sent, or nobody waits; nothing is copied after it

 private:
  struct Copied {
    StatePart part;
    StateDict tensors;
    std::optional<Digest> state = {};           // of the whole, if no step need follow
    double copy_seconds = 0, wait_seconds = 0;  // for the copy; for which the loop stood still
    int64_t updates = 0;                        // of the loop, when it was copied
  };
  struct Streaming {
    int64_t step = -1;
    int part = 0, parts = 0;
    int64_t taken = 0;
    std::string error = {};
  };

  void guarded(const std::function<void()>& body);
  void copy(const std::stop_token& stop);
  void pass_on(const std::stop_token& stop, std::deque<Copied>& queue);
  void give(const Copied& copied);
  int64_t rest(const StatePart& part, int64_t updates);
  void save(const Copied& copied);
  CheckpointPart stream(const StatePart& part, const StateDict& copied);

  World world_;
  Clock::duration rest_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  PeerId coordinator_;
  std::deque<StatePart> parts_;
  std::deque<Copied> to_write_, to_send_;
  SnapshotMemory memory_;
  int64_t wanted_ = 0, prepared_ = 0;             // bytes of memory for a part
  int uncopied_ = 0;                              // parts that still need the state as it is,
  int saving_ = 0;                                // those that are not yet written or sent,
  int writing_ = 0;                               // and of these the parts of checkpoints that are copied
  std::optional<Clock::time_point> waits_since_;  // the loop, for parts to be copied
  Streaming streaming_;
  int64_t updates_ = 0;  // of the loop
  bool finishing_ = false, given_up_ = false;
  std::jthread copier_, sender_, writer_;
};

}  // namespace elinvar
