#pragma once
// Copies parts of the state for a checkpoint or a learner. One thread copies them while the loop computes gradients and
// leaves the state unchanged; two other threads then write and send them, and may take as long as disk and network
// need. While there is nothing to copy, the memory for the next copy is prepared. The last checkpoint is written from
// the state itself, which stays unchanged until then.
//
// A learner that no worker waits for receives its part in slices, one in each step, so that a worker that computes on
// the same core loses little in each.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/snapshot.h"
#include "elastic/protocol/member.h"

namespace elinvar {

class StateCopier {
 public:
  using Clock = std::chrono::steady_clock;
  // Callbacks, called from the copier's threads with no lock held.
  struct World {
    std::function<StateDict(const StatePart& part)> state;  // returns views of the state at the part's step
    std::function<std::filesystem::path()> directory;  // the run directory; "": parts are streamed to the coordinator
    // Sends a message about the state after `step` updates; peer 0: to the coordinator.
    std::function<void(PeerId peer, int64_t step, Payload payload)> send;
    std::function<void(std::exception_ptr)> failed;
    // With ZeRO: returns views of the slices of other tensors of the state in the part's buckets; and sends a copy of
    // them to a member that will keep them.
    std::function<std::vector<StateSlice>(const StatePart& part)> slices = {};
    std::function<void(const StatePart& part, const std::vector<StateSlice>& slices)> move = {};
  };
  // `rest` is the longest time between two slices.
  StateCopier(World world, PeerId coordinator, Clock::duration rest = std::chrono::seconds(2));
  ~StateCopier();
  StateCopier(const StateCopier&) = delete;
  StateCopier& operator=(const StateCopier&) = delete;

  void add(StatePart part);
  void prepare(int64_t bytes);  // prepares memory for the next part
  void updated();               // the loop has made a step
  bool copied() const;          // whether no part needs the unchanged state
  // Waits until copied(); the loop has stood still since this time.
  void wait(std::optional<Clock::time_point> since = {});
  void piece_taken(int64_t step, const messages::Taken& taken);  // the coordinator's answer to a streamed piece
  void follow(PeerId coordinator);  // a new coordinator, which cannot use what was streamed before
  void give_up();                   // the run no longer waits
  void finish();  // returns when all is saved and sent, or the run no longer waits; nothing is copied afterwards

 private:
  struct Copied {
    StatePart part;
    StateDict tensors;
    std::vector<StateSlice> slices = {};
    std::optional<Digest> state = {};           // digest of what this worker holds whole, if no step need follow
    double copy_seconds = 0, wait_seconds = 0;  // duration of the copy; time for which the loop stood still
    int64_t updates = 0;                        // the loop's updates when it was copied
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
  CheckpointPart stream(const Copied& copied);

  World world_;
  Clock::duration rest_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  PeerId coordinator_;
  std::deque<StatePart> parts_;
  std::deque<Copied> to_write_, to_send_;
  SnapshotMemory memory_;
  int64_t wanted_ = 0, prepared_ = 0;             // bytes of memory for a part
  int uncopied_ = 0;                              // parts that still need the unchanged state
  int saving_ = 0;                                // parts that are not written or sent yet
  int writing_ = 0;                               // checkpoint parts among them that are copied
  std::optional<Clock::time_point> waits_since_;  // since when the loop waits for parts to be copied
  Streaming streaming_;
  int64_t updates_ = 0;  // the loop's updates
  bool finishing_ = false, given_up_ = false;
  std::jthread copier_, sender_, writer_;
};

}  // namespace elinvar
