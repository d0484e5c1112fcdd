#pragma once
// A worker's session in a job: the training loop on one side, the network on the other, and the protocol between them
// (PROTOCOL.md). It knows a dictionary of state and a number of steps, not networks nor data.
//
//   while (session.begin()) {
//     while (Session::Task* const task = session.next())
//       task->finish(facts of the gradient of (state, session.step(), task->vrank()), which goes into *task);
//     const Reduced* const reduced = session.reduce();
//     if (reduced == nullptr) continue;                  // a member is gone: the same step, another plan
//     if (!session.step().last) ... update the state by *reduced ...
//     session.advance(...);
//   }
//
// After `steps` updates there is one more round, without gradients and without an update. Between begin() and reduce()
// the state must not change: parts of it may be on their way to a file or a learner, copied by a thread of the session
// while gradients are computed; reduce() returns only when they are copied.
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
#include "elastic/session/gradient_sink.h"
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
  // Computes the gradient of a virtual rank, for what it consists of: it counts for nothing. Without samples it has no
  // tensors, and another virtual rank is asked for. Called within begin(), once at most unless a step is replayed, so
  // that memory and caches are touched before others have to wait for it.
  std::function<RankGradient(int64_t step, int vrank)> warm_up;
  // Who coordinates now, as the run directory shows it. Asked a few times a second while this worker is out of touch.
  struct Sighting {
    Watch::Sight sight;
    PeerId coordinator = 0;
    std::string endpoint = {};
  };
  std::function<std::optional<Sighting>()> look;
  std::vector<Fault> faults;  // on purpose (elastic/session/worker_faults.h)
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

// The step at hand.
struct StepView {
  int64_t number = 0;    // updates made
  bool last = false;     // all of the run are: what follows is the round without gradients
  bool replays = false;  // it is made again for an audit (elastic/session/replay.h): nothing is told of it
  // This worker is the first of those that compute the step: one of them is enough to show it to people. After reduce()
  // it is the one of those that did.
  bool leads = false;
  int worker = 0;                   // this worker's number in the job
  ScalingState scaling_state = {};  // of the gradients, with adaptive scaling; that of the update is in Reduced
};

// But for drain() and fail(), all of this is for one thread, which also ends the session. The session is told of timed
// activities (tensor/base/activity.h) of that thread, to tell a hang from them.
class Session {
  struct Impl;

 public:
  // Failure if its threads cannot be started. The caller then still owns the transport, and can report the failure.
  Session(SessionOptions options, std::unique_ptr<Transport>&& transport, StateAccess state);
  // Returns when what is to be saved is saved, and sent.
  ~Session();

  // Waits until there is something to do; false: the session is over. Throws what went wrong in a thread of its own.
  bool begin();
  const StepView& step() const;

  // A virtual rank of the step whose gradient this worker computes: the sink that its tensors go into.
  class Task final : public GradientSink, private GradientReceiver {
   public:
    Task(Impl& session, int vrank);
    int vrank() const { return vrank_; }
    // It was assigned to this worker; else it is computed for an audit, which looks at its tensors alone.
    bool counts() const { return counts_; }
    // Other work follows the gradient, before finish(): what a group of GPUs has begun with is not left to wait for it,
    // since others would take that for a hang. To be called before the gradient is computed.
    void work_follows() { work_follows_ = true; }
    void finish(RankFacts facts);  // all of the virtual rank is there

    void reads(Tensor& input) override;
    bool make_room() override;

   private:
    Plan plan() override;
    void open(int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) override;
    void put(size_t gradient, Tensor value, const Mark& since) override;

    Impl& session_;
    int vrank_;
    bool counts_ = false, work_follows_ = false;
    std::chrono::steady_clock::time_point began_;
    std::vector<Tensor> opened_, opened_statistics_;  // that have been passed on,
    bool opened_passes_ = false;                      // and are there until the next gradient alone
  };
  // The next one, until next() is called again; null: all are finished, or the plan has changed.
  Task* next();
  // Waits for the gradients of all. Null: begin again, with another plan. The result stays until begin().
  const Reduced* reduce();
  // Something about the step after its update, for the coordinator to keep. Unlike facts it is lost if either of the
  // two is.
  void show(std::string bytes);
  // The update is made.
  void advance(const StepReport& report);

  const Member::Outcome& outcome() const;               // once the session is over
  void drain();                                         // asks to leave; from any thread
  void fail(const std::string& reason, int exit_code);  // tells the coordinator, on the way out

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace elinvar
