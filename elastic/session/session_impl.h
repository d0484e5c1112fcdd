#pragma once
// The inside of a session (session.h): what the training loop and the thread that listens to the network share, under
// one lock. The loop's side is in session.cpp, and where it gives gradients in session_leaves.cpp; the listener's in
// session_listener.cpp.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>

#include "elastic/checkpoint/state_copier.h"
#include "elastic/session/group_former.h"
#include "elastic/session/replay.h"
#include "elastic/session/worker_faults.h"
#include "elastic/session/session.h"
#include "elastic/session/work_clock.h"

namespace elinvar {

using Lock = std::unique_lock<std::mutex>;

struct Session::Impl {
  using Clock = std::chrono::steady_clock;
  Impl(SessionOptions given, Transport& with, StateAccess access);
  ~Impl();

  static Seconds now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
  bool adaptive() const { return options.member.scaling.batch > 0; }
  StateDict whole_state(int64_t step, const ScalingState& scaling_state) const;
  void failed(std::exception_ptr failure);  // from any thread: the loop throws it

  // --- session_listener.cpp. With the lock held, but for listen() and send().
  MemberOptions options_of_member();
  GroupFormer::Tells about_groups();
  void flush();  // carries out what the member wants done
  void listen(const std::stop_token& stop);
  void heartbeat();
  void receive(const Packet& packet);
  void seek(const std::optional<SessionOptions::Sighting>& sighting);
  void follow(int64_t term, PeerId coordinator, const std::string& endpoint);
  void send(PeerId peer, int64_t step, Payload payload);  // peer 0: to the coordinator
  void transmit(PeerId peer, Message message);

  // --- session_leaves.cpp. With the lock held; whether it happened.
  bool flip(Fault::Flips what, int64_t step, std::span<Tensor> tensors, nlohmann::json about);
  void tell_fault(const char* what, int64_t step, nlohmann::json fields);

  // --- session.cpp. The loop's.
  Member& at_work() { return replay ? replay->member() : member; }  // what the loop is about: the job, or a replay
  void wait(Lock& lock);                                            // until there is news
  void wait_for_group(Lock& lock);                                  // a little
  void wait_for_copies(Lock& lock, std::optional<Clock::time_point> since = {});
  void begin_replay(Lock& lock);
  void load(Lock& lock);  // what the member is told to
  void warm_up(Lock& lock);
  void begin_step(Lock& lock, bool listens);  // of which next() gives tasks, unless it listens
  void contribute(Lock& lock);                // all that this worker has to give
  bool wait_for_sums(Lock& lock);             // false: they are abandoned
  bool leads() const { return !replay && member.position().index == 0; }
  void want_memory(int part, int parts);
  void touch_memory();
  void flip_state(Fault::Flips what, const std::string& prefix);
  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }

  SessionOptions options;
  std::unique_ptr<Transport> owned;  // of `transport`; set last, so that a failed construction leaves it to the caller
  Transport* transport;
  StateAccess state;
  std::mutex mutex;
  std::condition_variable changed;
  bool pristine = !options.imported;  // the state is that which the run begins with
  WorkerFaults worker_faults;
  Member member;
  std::deque<Message> saved;  // what the coordinator was told of the last checkpoints
  Watch watch;
  std::string coordinator_endpoint;
  WorkClock work;          // of the loop
  int64_t wanted_for = 0;  // the generation whose parts of the state there is memory for
  int64_t leaf_bytes = 0;  // of what a gradient consists of
  std::exception_ptr error;
  int64_t leaves = 0;
  bool listening = false;
  StepView view;  // the loop's alone, like its task
  std::optional<Task> task;
  Reduced reduced;
  TensorsDigest gradient;  // of that
  double reduce_seconds = 0;
  std::optional<Clock::time_point> group_since;  // it adds up this step, and has come no further, since then
  int64_t group_progress = 0;                    // how far that was
  std::optional<Replay> replay;
  StateCopier copier;
  std::optional<GroupFormer> former;
  std::jthread listener;
};

}  // namespace elinvar
