#pragma once
// A worker's session in a job. It connects the training loop with the network by the protocol (PROTOCOL.md). It knows a
// dictionary of state and a number of steps; it knows nothing of networks or data.
//
//   while (session.begin()) {
//     while (Session::Task* const task = session.next())
//       task->finish(facts of the gradient of (state, session.step(), task->vrank()), which goes into *task);
//     const Reduced* const reduced = session.reduce();
//     if (reduced == nullptr) continue;                  // a member is gone: go on with the step
//     if (!session.step().last) ... update the state by *reduced ...
//     if (!session.exchange_values()) continue;
//     session.advance(...);
//   }
//
// After `steps` updates there is one more round, without gradients and without an update. Between begin() and reduce()
// the state must not change: a thread of the session may be copying parts of it for a file or a learner while gradients
// are computed; reduce() returns only when they are copied.
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "comm/transport.h"
#include "elastic/ledger/ledger.h"
#include "elastic/protocol/member.h"
#include "elastic/session/chaos.h"
#include "elastic/session/gradient_sink.h"
#include "elastic/session/watch.h"
#include "tensor/state.h"
#include "tensor/state_slice.h"
#include "tensor/transfer.h"

namespace elinvar {

// With ZeRO: the session's access to the parameters, and to the optimizer's state of the slices that this worker keeps.
// Slices are of the parameters in order. What is in slices depends on the stage of ZeRO (`zero`, from 1 on): with the
// third one the parameters, too; and with any the moving averages of the parameters, if the job keeps some. Functions
// that return tensors are also called from other threads while the state does not change.
struct ShardAccess {
  // From now on the worker holds the state with this stage, and keeps these slices alone. The state of slices which it
  // did not keep is that which it has restored, or had whole, or else zero.
  std::function<void(int zero, std::vector<Slice> slices)> keep;
  // The state is to come from other workers, who hold it with this stage (from 0 on): this one keeps nothing yet, and
  // no state that it restored counts.
  std::function<void(int zero)> learns;
  // Returns the names and ranges of the tensors in a slice, always in the same order: the parameters first.
  std::function<std::vector<SliceRange>(const Slice& slice, int zero)> ranges;
  // Returns views of these tensors, if the slice is kept, or their values in the state that was restored.
  std::function<std::vector<StateSlice>(const Slice& slice, int zero)> state;
  // Returns the parameters in a slice, one-dimensional: a view, or of a slice that is not kept what state() returns.
  std::function<Tensor(const Slice& slice)> parameter;
  std::function<Tensor(const Slice& slice)> average = {};  // .. or the averages of these
  // Returns the parameters in a slice that the last update changed, one-dimensional, and takes them: all, or of a
  // sparse table the rows that the step touched. update() may also get all of the latter.
  std::function<Tensor(const Slice& slice)> updated = {};
  std::function<void(const Slice& slice, const Tensor& values)> put_updated = {};
  // Returns rows of a sparse table, or of its average, (rows, channels), which are in a slice of whole rows.
  std::function<Tensor(const Slice& slice, std::span<const int64_t> rows, bool average)> rows = {};
  std::function<std::vector<TensorLayout>(int zero)> layout = {};  // of all tensors that are in slices
  std::function<bool()> fetches;  // whether the network has no parameters, so that passes fetch them
  std::function<bool()> averages = [] { return false; };  // whether averages are in slices, which scores fetch
};

// The session's access to the state. `view` shares storage with the live state and is called from other threads while
// the state does not change.
struct StateAccess {
  std::function<StateDict()> view;
  // Restores the state of checkpoint `step`, or for 0 the initial state of the run, for a network that has been in use
  // or was not initialised, to be held with this stage of ZeRO. Returns null if the checkpoint cannot be read from
  // here.
  std::function<std::optional<ScalingState>(int64_t step, int zero)> restore;
  std::optional<ShardAccess> shards = {};  // null: the optimizer's state cannot be in slices
};

struct SessionOptions {
  MemberOptions member;
  LedgerOptions ledger = {};
  uint64_t run = 0;
  PeerId coordinator = 0;  // the transport is connected to it
  std::string coordinator_endpoint = {};
  int64_t term = 0;       // the coordinator's term
  bool imported = false;  // the run begins with checkpoint 0, not with a new network
  WorkerInfo about = {};  // the session sets its field `state`
  // Returns the run directory, or "" if this process cannot see it. Called once there is something to save.
  std::function<std::filesystem::path()> directory;
  // Computes the gradient of a virtual rank to learn its layout and to touch memory and caches before others have to
  // wait for them; the result is discarded. If the virtual rank has no samples, the gradient has no tensors and another
  // virtual rank is asked for. Called within begin(), at most once unless a step is replayed.
  std::function<RankGradient(int64_t step, int vrank)> warm_up;
  // The current coordinator, as the run directory shows it. Looked up a few times a second while this worker is out of
  // touch.
  struct RecordedCoordinator {
    Watch::Observation observation;
    PeerId coordinator = 0;
    std::string endpoint = {};
  };
  std::function<std::optional<RecordedCoordinator>()> look;
  std::vector<Fault> faults;  // faults to inject (elastic/session/worker_faults.h)
  Device device = {};         // that computes; heartbeats report the memory of tensors on a GPU
  // For groups of GPUs (PROTOCOL.md) that this worker can join; and the longest time that a group may take to form, or
  // go without progress in a step.
  std::shared_ptr<Nccl> nccl = nullptr;
  std::chrono::duration<double> group_patience{30};
  // Starts a coordinator that takes over from the coordinator of this term.
  std::function<void(int64_t term)> take_over;
  WatchOptions watch = {};
  // The interval is half as long while out of touch with the coordinator.
  std::chrono::milliseconds heartbeat{static_cast<int64_t>(1000 * kHeartbeat)};
};

// The current step.
struct StepView {
  int64_t number = 0;    // updates made
  bool last = false;     // all updates of the run are made: this is the round without gradients
  bool replays = false;  // the step is repeated for an audit (elastic/session/replay.h), and nothing of it is reported
  // This worker is the first of those that compute the step; one of them is enough to show the step to people. After
  // reduce() it is the first of those that computed it.
  bool leads = false;
  int worker = 0;                   // this worker's number in the job
  ScalingState scaling_state = {};  // used for the gradients, with adaptive scaling; the update's is in Reduced
};

// Except for drain() and fail(), one thread makes all calls, and the same thread destroys the session. The session is
// told of timed activities (tensor/base/activity.h) of that thread, to distinguish them from a hang.
class Session {
 public:
  struct Impl;

  // Throws Failure if its threads cannot be started. The caller then still owns the transport, and can report the
  // failure.
  Session(SessionOptions options, std::unique_ptr<Transport>&& transport, StateAccess state);
  // Waits until everything to be saved is saved and sent.
  ~Session();

  // Waits for work. Returns false if the session is over. Throws the exception that ended a thread of the session.
  bool begin();
  const StepView& step() const;

  // Thrown where the loop waits for other members in the middle of a step, and a member is gone: begin again.
  struct StepOver {};
  // A pass of a rank gradient through adjacent segments.
  struct Pass {
    Interval segments;
    bool backward = false;
    bool last = false;  // of the passes of this rank gradient on this worker
  };
  // The input or output of a pass: a value of the network or its gradient, and the number of the next random operation.
  struct PassValue {
    Tensor value;
    uint32_t random = 0;
  };
  // The gradient of a virtual rank that this worker computes in the step: the sink of its tensors.
  //
  // With pipeline parallelism next() returns the same task for each pass, between those of other virtual ranks. The
  // loop receives its input, unless it is the first pass of all, computes it, and sends what it gives, unless it is the
  // last of all. After the last pass of this worker it calls finish().
  class Task final : public GradientSink, private GradientReceiver {
   public:
    Task(Impl& session, int vrank);
    int vrank() const { return vrank_; }
    const Pass* pass() const { return pass_ ? &*pass_ : nullptr; }  // null: without pipeline parallelism
    // These throw StepOver. receive() waits for the input of the pass, whose shape and type must fit, and returns it on
    // the CPU or, from a group, on this worker's device. If the virtual rank has no samples, skip() replaces both.
    PassValue receive(const StageExchange::Fits& fits);
    void send(PassValue result);
    void skip();
    // Whether there is a gradient to compute, and not only something to attach to its facts.
    bool computes() const { return computes_; }
    // Whether this worker attaches what the loop shares about the virtual rank to the facts.
    bool attaches() const { return attaches_; }
    // The virtual rank is assigned to this worker; otherwise it is computed for an audit, which only reads its tensors.
    bool counts() const { return counts_; }
    // Declares that other work follows the gradient before finish(). Then a group of GPUs does not begin to exchange
    // the gradient early and wait for the rest, which others would take for a hang. Requires that the gradient is not
    // being computed yet.
    void work_follows() { work_follows_ = true; }
    // With tensor parallelism, the members that compute the shards of the virtual rank together, whose functions throw
    // StepOver if the step is over. Otherwise the group of a process that computes all shards.
    ShardGroup& shards() override;
    // Ends the task: all tensors of the virtual rank were passed.
    void finish(RankFacts facts);

    void reads(Tensor& input) override;
    bool make_room() override;

   private:
    Plan plan() override;
    void open(int64_t count, std::vector<Tensor> batch_statistics, const Mark& since) override;
    void put(size_t gradient, Tensor value, const Mark& since) override;

    bool named() const;     // the ledger names the digest of the gradient
    bool compared() const;  // an audit compares it
    bool stale() const;     // StepGradients::stale
    double seconds() const;
    void digest(const RankGradient& gradient);

    friend struct Impl;
    void begin_pass(const PipelinePass& pass, bool last);
    void end_pass();
    void exclude_waiting();  // waits for transfers between stages do not count as work
    void attach_only();

    Impl& session_;
    int vrank_;
    bool counts_ = false, work_follows_ = false, computes_ = true, attaches_ = true;
    StepGradients::Begun begun_;
    std::optional<Pass> pass_;
    PipelinePass order_;
    std::chrono::steady_clock::time_point began_;
    double seconds_ = 0;                              // of the passes before
    std::vector<Tensor> opened_, opened_statistics_;  // the tensors that were passed on
    bool opened_passes_ = false;                      // they are valid only until the next gradient
    // With ZeRO's second stage: tensors are passed on and not kept. What needs them later needs only their digests:
    // those of gradients, and then of batch statistics.
    bool passes_on_ = false, digests_ = false;
    std::vector<Digest> gradient_digests_, statistics_digests_;
  };
  // Returns the next task, valid until next() is called again. Null: all are finished, or the plan has changed. Throws
  // StepOver.
  Task* next();
  void give_up();  // the task, after StepOver: call reduce(), and begin again
  // These are called within tasks of jobs with ZeRO. They ask for the parameters in buckets that this worker does not
  // keep (ShardAccess), or for their averages, and wait for them: each request gives one set of slices. Both throw
  // StepOver.
  void ask_parameters(std::span<const int> buckets, bool average);
  std::vector<Blob> take_parameters(int bucket, bool average);
  void forget_parameters(std::span<const int> buckets, bool average);  // those that were asked for are not needed
  const Buckets& parameter_buckets() const;
  // .. the same for rows of a sparse table, by bucket: returns their values. Throws StepOver.
  std::map<int, Blob> fetch_rows(int table, const std::map<int, std::vector<int64_t>>& rows, bool average);
  // Waits for the sum of all gradients. Null: begin again with another plan. The result is valid until begin().
  const Reduced* reduce();
  // Sends a summary of the step after its update to the coordinator, which keeps it. Unlike facts it is lost if the
  // worker or the coordinator is lost.
  void show(std::string bytes);
  // With ZeRO, within an update that needs sums over whole parameters: takes those of the segments of the slices that
  // this worker keeps, `each` for a segment, and returns those of all segments of all parameters (tensor/slice.h).
  // Throws StepOver if the step is over.
  std::vector<double> gather_sums(const std::vector<double>& mine, int each);
  // With ZeRO, after the update: sends the parameters that this worker has updated, and takes those of others. Returns
  // false if the step is over: begin again. Does nothing without ZeRO.
  bool exchange_values();
  // Says how long the forward pass through each segment of the network takes.
  void measured(std::vector<double> segment_seconds);
  // Records that the update is made.
  void advance(const StepReport& report);

  const Member::Outcome& outcome() const;               // valid once the session is over
  void drain();                                         // asks to leave; from any thread
  void fail(const std::string& reason, int exit_code);  // tells the coordinator before this worker exits

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace elinvar
