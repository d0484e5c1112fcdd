#pragma once
// A worker's session in a job: the training loop on one side, the network on the other, and the protocol between them
// (PROTOCOL.md). It knows a dictionary of state and a number of steps, not networks nor data.
//
//   while (session.begin()) {
//     if (!session.knows_layout()) session.learn_layout(a leaf that counts for nothing);
//     while (const auto vrank = session.next()) session.add(*vrank, leaf of (state, session.step(), *vrank));
//     if (!session.reduce()) continue;                 // a member is gone: the same step, another plan
//     if (!session.last()) ... update the state by session.reduced() ...
//     session.advance(...);
//   }
//
// After `steps` updates there is one more round, without leaves' tensors and without an update. Between begin() and
// reduce() the state must not change: parts of it may be on their way to a file or a learner, copied by a thread of the
// session while the leaves are computed; reduce() returns only when they are copied.
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/transport.h"
#include "elastic/ledger/ledger.h"
#include "elastic/protocol/member.h"
#include "elastic/session/chaos.h"
#include "elastic/session/watch.h"
#include "tensor/state.h"
#include "tensor/transfer.h"

namespace elinvar {

// How the session gets at the state. `view` shares storage with the live state and is called from other threads while
// that does not change.
struct StateAccess {
  std::function<StateDict()> view;
  // That of checkpoint `step`; 0: what the run begins with, for a network that has been in use, or does not have it.
  // Nothing: the checkpoint cannot be seen from here.
  std::function<std::optional<ScalingState>(int64_t step)> restore;
};

struct SessionOptions {
  MemberOptions member;
  LedgerOptions ledger = {};
  uint64_t run = 0;
  PeerId coordinator = 0;  // the transport is connected to it
  std::string coordinator_endpoint = {};
  int64_t term = 0;       // the coordinator's
  bool imported = false;  // the run begins with checkpoint 0, not with a new network
  WorkerInfo about = {};  // `state` is filled in here
  // The run directory, if this process sees it; else "". Asked once there is something to be saved.
  std::function<std::filesystem::path()> directory;
  // Who coordinates now, as the run directory shows it. Asked a few times a second while this worker is out of touch.
  struct Sighting {
    Watch::Sight sight;
    PeerId coordinator = 0;
    std::string endpoint = {};
  };
  std::function<std::optional<Sighting>()> look;
  std::vector<Fault> faults;  // to inject (elastic/session/worker_faults.h)
  // For groups of GPUs (PROTOCOL.md), in which this worker can be; and how long one may take to form, or come no
  // further with a step.
  std::shared_ptr<Nccl> nccl = nullptr;
  std::chrono::duration<double> group_patience{30};
  // Starts a coordinator that takes over from the one of this term.
  std::function<void(int64_t term)> take_over;
  WatchOptions watch = {};
  // Twice as often while out of touch with the coordinator.
  std::chrono::milliseconds heartbeat{static_cast<int64_t>(1000 * kHeartbeat)};
};

class Session {
 public:
  // Failure if its threads cannot be started. The caller then still owns the transport, and can report the failure.
  Session(SessionOptions options, std::unique_ptr<Transport>&& transport, StateAccess state);
  // Returns when what is to be saved is saved, and sent.
  ~Session();

  // Waits until there is something to do; false: the session is over. Throws what went wrong in a thread of its own.
  bool begin();
  int64_t step() const;  // updates made
  bool last() const;     // all of the run are: what follows is the round without leaves' tensors
  bool replays() const;  // this step is made again for an audit (elastic/session/replay.h): nothing is told of it
  ScalingState scaling_state()
      const;  // of the leaves, with adaptive scaling; what the update is made with is in reduced()
  bool knows_layout() const;
  void learn_layout(const RankGradient& leaf);
  // What the loop is at until it says otherwise, or to add() or reduce(): work that takes as long each time, so that a
  // hang can be told from it (elastic/protocol/hang.h). next() says "a leaf" by itself.
  void works_on(const std::string& what);
  std::optional<int> next();  // the next virtual rank to compute here; none: all are added, or it changed
  // Whether it was dealt to this worker: of a leaf that is only audited nothing but the leaf is looked at.
  bool owns(int vrank) const;
  // Takes what a virtual rank's leaf will be computed from: fault injection may damage it (elastic/session/chaos.h).
  void reads(int vrank, Tensor& input);
  // Whether leaves of this step stay where they were computed, else they go to the CPU; and what to do where the device
  // has no room for one more. False: nothing can be done. (StepReduction::let_leaves_go)
  bool keeps_leaves() const;
  bool let_leaves_go();
  void add(int vrank, RankGradient leaf);
  // Whether the leaf of next() may be given while its backward pass runs, because it is the last one here and others
  // wait for it. Then open() it, once its targets are counted, put() its gradients as they become ready, in any order,
  // and add() it without them.
  bool opens(int vrank) const;
  // Tensors of a GPU are those of a leaf that stays there; with a mark they are there by then, until the next leaf.
  void open(int vrank, int64_t count, std::vector<Tensor> batch_statistics, const Mark& since = {});
  void put(size_t gradient, Tensor value, const Mark& since = {});
  bool reduce();  // false: begin again
  const Reduced& reduced() const;
  // Whether this worker is the first of those that compute the step: one of them is enough to show it to people.
  bool leads() const;
  // Something about the step after its update, for the coordinator to keep. Unlike facts it is lost if either of the
  // two is.
  void show(std::string bytes);
  // The update is made.
  void advance(const StepReport& report);

  int worker() const;  // its number in the job; 0: none yet
  const Member::Outcome& outcome() const;
  void drain();                                         // asks to leave; from any thread
  void fail(const std::string& reason, int exit_code);  // tells the coordinator, on the way out

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace elinvar
