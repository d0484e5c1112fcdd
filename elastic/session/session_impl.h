#pragma once
// The implementation of a session (session.h): data shared by the training loop and the listening thread, under one
// lock. session.cpp has the loop's side, session_gradients.cpp the part that takes gradients, and session_listener.cpp
// the listener.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

#include "elastic/checkpoint/state_copier.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/session/group_former.h"
#include "elastic/session/replay.h"
#include "elastic/session/replica_shards.h"
#include "elastic/session/worker_faults.h"
#include "elastic/session/session.h"
#include "elastic/session/stage_transfers.h"
#include "elastic/session/work_clock.h"

namespace elinvar {

using Lock = std::unique_lock<std::mutex>;

struct Session::Impl {
  using Clock = std::chrono::steady_clock;
  Impl(SessionOptions given, Transport& with, StateAccess access);
  ~Impl();

  static Seconds now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
  bool adaptive() const { return options.member.scaling.batch > 0; }
  // Without what members hold in slices with this stage of ZeRO.
  StateDict whole_state(int64_t step, const ScalingState& scaling_state, int zero) const;
  void failed(std::exception_ptr failure);  // from any thread: the loop throws it

  // --- session_shards.cpp: the optimizer's state, sharded (ZeRO).
  std::vector<StateSlice> state_of(std::span<const int> buckets, int zero) const;
  std::vector<Blob> values_of(int bucket) const;
  std::vector<Blob> averages_of(int bucket) const;
  void send_shards(const StatePart& part, const std::vector<StateSlice>& slices);
  std::vector<messages::StateChunks> state_chunks(std::span<const int> buckets, int zero) const;
  std::vector<StateSlice> places_of(int bucket, int zero_before, int zero) const;
  void change_shards(Lock& lock);
  void transfer_values(Lock& lock);
  void compose_digests(Lock& lock);
  Blob rows_of(const messages::WantRows& wanted) const;
  bool can_give(bool average) const;
  void give_wanted();      // requires the lock
  void give_parameters();  // requires the lock

  // --- session_listener.cpp. Requires the lock, except for listen() and send().
  MemberOptions options_of_member();
  GroupFormer::Tells about_groups();
  void flush();  // carries out the member's actions
  void listen(const std::stop_token& stop);
  void heartbeat();
  void receive(const Packet& packet);
  void seek(const std::optional<SessionOptions::RecordedCoordinator>& recorded);
  void follow(int64_t term, PeerId coordinator, const std::string& endpoint);
  void send(PeerId peer, int64_t step, Payload payload);  // peer 0: to the coordinator
  void transmit(PeerId peer, Message message);

  // A rank gradient that several members have computed, of which a digest is needed: each has those of its own tensors.
  struct Undigested {
    int vrank = 0;
    bool named = false, compared = false;
    RankFacts facts;
    std::vector<Digest> tensors;  // of all gradients and batch statistics, in order; none without samples
  };
  // --- session_stages.cpp: rank gradients that several members compute together. Requires the lock.
  void begin_pipeline();
  Task* next_pass();  // throws StepOver
  void share_digests(Undigested rank_gradient);
  void complete_digests(Lock& lock);  // throws StepOver

  // --- session_gradients.cpp. Requires the lock. flip() returns whether a bit was flipped.
  bool flip(Fault::Flips what, int64_t step, std::span<Tensor> tensors, nlohmann::json about);
  // Fills in the digests for the ledger from those of all tensors, if the rank gradient is named there. Returns its
  // digest for an audit if it is compared.
  std::optional<Digest> digest_rank_gradient(RankFacts& facts, std::span<const Digest> tensors, bool named,
                                             bool compared) const;
  void tell_fault(const char* what, int64_t step, nlohmann::json fields);
  void die(Fault::Point at, int64_t step);  // kills this process if an injected fault says so

  // --- session.cpp. Called by the loop. at_work() is the member that the loop works for: the job's, or a replay's.
  Member& at_work() { return replay ? replay->member() : member; }
  void wait(Lock& lock);  // waits until there is news
  // Waits within work until `done` returns true, which is called at each news. Throws what ended another thread.
  template <class Done>
  void wait_within_work(Lock& lock, const Done& done) {
    const WorkPause pause(work);
    for (rethrow(); !done(); rethrow()) wait(lock);
  }
  void wait_for_group(Lock& lock, int64_t progress);  // waits for a short time
  // Waits within work until the group has carried a transfer. Returns false if `going` does first.
  bool wait_for_transfer(Lock& lock, GpuGroup& group, const std::function<bool()>& going);
  void wait_for_copies(Lock& lock, std::optional<Clock::time_point> since = {});
  void begin_replay(Lock& lock);
  void load(Lock& lock);  // loads the state that the member names
  void warm_up(Lock& lock);
  void begin_step(Lock& lock, bool listens);  // begins a step, for which next() gives tasks unless it `listens`
  void contribute(Lock& lock);                // contributes everything that this worker has for the step
  bool wait_for_sums(Lock& lock);             // returns false if the sums are abandoned
  bool leads() const { return !replay && member.position().index == 0; }
  void want_memory(int part, int parts, int zero);
  void touch_memory();
  void flip_reduced();
  void flip_state(Fault::Flips what, const std::string& prefix);
  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }

  SessionOptions options;
  // Owns `transport`; set last, so that a failed construction leaves it to the caller.
  std::unique_ptr<Transport> owned;
  Transport* transport;
  StateAccess state;
  std::mutex mutex;
  std::condition_variable changed;
  bool pristine = !options.imported;  // the state is the initial state of the run
  WorkerFaults worker_faults;
  Member member;
  std::deque<Message> saved;  // messages to the coordinator about the last checkpoints
  Watch watch;
  std::string coordinator_endpoint;
  WorkClock work;              // tracks the loop
  int64_t wanted_for = 0;      // the generation for whose parts of the state memory is prepared
  int64_t gradient_bytes = 0;  // size of one rank gradient
  std::exception_ptr error;
  int64_t gradients_computed = 0;
  int64_t gpu_peak = 0;                 // bytes of tensors on its GPU, at most before this step; 0 on a CPU
  std::vector<double> segment_seconds;  // of the forward pass through each segment of the network; none: not known
  bool listening = false;
  int64_t begun_in = 0;  // the generation in which the step began
  bool sharded = false;  // .. which makes the step with ZeRO
  int held_with = 0;     // the stage of ZeRO with which members hold the state before the step
  StepView view;         // used only by the loop, like its task
  std::optional<Task> task;
  ReplicaShards replica{*this};  // used only by the loop
  // With pipeline parallelism: the passes of the step, and the virtual ranks for which this worker attaches what the
  // loop shares, of which `done` are done; and the tasks between their passes.
  struct Pipeline {
    std::vector<PipelinePass> passes;
    std::vector<int> attached;
    size_t done = 0;
    std::map<int, Task> tasks = {};                // by virtual rank
    Task* running = nullptr;                       // the task of the pass under way
    std::optional<StageTransfers> transfers = {};  // if values between stages go through a group of GPUs
  };
  std::optional<Pipeline> pipeline;
  std::vector<Undigested> undigested;
  Reduced reduced;
  TensorsDigest gradient;  // digest of `reduced`
  // With ZeRO: the digests of the state before step `digested`, without the tensors of the optimizer.
  TensorDigests digests;
  int64_t digested = -1;
  ScalingState made_before;  // the scaling state of the state before the step
  double reduce_seconds = 0;
  std::optional<Clock::time_point> group_since;  // when the group began to reduce this step, or last made progress
  int64_t group_progress = 0;                    // the progress at that time
  std::optional<Replay> replay;
  StateCopier copier;
  std::optional<GroupFormer> former;
  std::jthread listener;
};

}  // namespace elinvar
