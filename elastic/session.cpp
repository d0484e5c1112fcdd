#include "elastic/session.h"

#include <pthread.h>

#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "elastic/checkpoint.h"
#include "elastic/part_stream.h"
#include "elastic/snapshot.h"
#include "elastic/state_parts.h"
#include "tensor/check.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

constexpr int kMostWriting = 2;  // copies for checkpoints that are not on the disk yet
constexpr std::chrono::seconds kStreamPatience{60};
constexpr double kToWake = 0.01;                           // seconds, for a thread that waits
constexpr const char* kCopying = "the copy of the state";  // may have to wait for a disk: nothing tells how long
constexpr const char* kStep = "step";                      // beside the state's own names, which have dots

namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

struct Session::Impl {
  struct Copied {
    StatePart part;
    StateDict tensors;
    nlohmann::json cost;
  };

  Impl(SessionOptions given, std::unique_ptr<Transport> with, StateAccess access)
      : options(std::move(given)),
        transport(std::move(with)),
        state(std::move(access)),
        member(options.member),
        watch(options.watch, options.tenure, now()) {
    {
      const Lock lock(mutex);
      member.introduce(options.coordinator, options.about);
      flush();
    }
    listener = std::jthread([this](std::stop_token stop) { guarded([&] { listen(stop); }); });
    copier = std::jthread([this](std::stop_token stop) { guarded([&] { copy(stop); }); });
    sender = std::jthread([this](std::stop_token stop) { guarded([&] { finish(stop, to_send); }); });
    writer = std::jthread([this](std::stop_token stop) { guarded([&] { finish(stop, to_write); }); });
    // Under these names their time on a processor can be told apart (bench elastic).
    pthread_setname_np(listener.native_handle(), "listener");
    for (std::jthread* thread : {&copier, &sender, &writer}) pthread_setname_np(thread->native_handle(), "copier");
  }

  ~Impl() {
    {
      Lock lock(mutex);
      changed.wait_for(lock, std::chrono::seconds(60), [&] { return (parts.empty() && saving == 0) || error; });
      // With the lock: else a thread could be between its look at this and its sleep.
      for (std::jthread* thread : {&copier, &sender, &writer}) thread->request_stop();
      changed.notify_all();
    }
    for (std::jthread* thread : {&copier, &sender, &writer}) thread->join();
    {
      const Lock lock(mutex);
      flush();
    }
    listener.request_stop();
    transport->wake();
    listener.join();
  }

  static Seconds now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

  void guarded(const std::function<void()>& body) {
    try {
      body();
    } catch (...) {
      const Lock lock(mutex);
      if (!error) error = std::current_exception();
      changed.notify_all();
    }
  }

  // What the member wants done, with the lock held.
  void flush() {
    for (Action& action : member.take_actions()) {
      switch (action.what) {
        case Action::What::connect:
          transport->connect(action.peer, action.endpoint);
          break;
        case Action::What::disconnect:
          transport->disconnect(action.peer);
          break;
        case Action::What::send:
          action.message.run = options.run;
          action.message.sender = options.member.self;
          transport->send(action.peer, std::move(action.message));
          break;
      }
    }
    for (StatePart& part : member.take_parts()) {
      parts.push_back(std::move(part));
      ++uncopied;
    }
    if (!woken) woken = Clock::now();
    changed.notify_all();
  }

  // The loop, until there is news.
  void wait(Lock& lock) {
    woken.reset();
    changed.wait(lock);
  }
  void wait_for_copies(Lock& lock) {
    works_on(kCopying);
    changed.wait(lock, [&] { return uncopied == 0 || error; });
    works_on("");
  }

  void listen(const std::stop_token& stop) {
    Clock::time_point beat = Clock::now() + options.heartbeat;
    while (!stop.stop_requested()) {
      Arrival arrival = transport->wait(beat);
      Lock lock(mutex);
      if (arrival.what == Arrival::What::message && arrival.message.run == options.run) receive(arrival.message);
      if (arrival.what == Arrival::What::lost) {
        if (arrival.peer == member.coordinator()) watch.lost();
        member.lost(arrival.peer, arrival.reason);
      }
      if (Clock::now() >= beat) {
        beat = Clock::now() + options.heartbeat;
        heartbeat();
        flush();
        if (watch.out_of_touch(now()) && !member.outcome()) {
          lock.unlock();
          const auto sighting = options.look ? options.look() : std::nullopt;  // it may wait for a disk
          lock.lock();
          seek(sighting);
        }
      }
      flush();
    }
  }

  void heartbeat() {
    nlohmann::json about = {{"leaves", leaves}};
    if (!work.empty())
      about.update({{"at", work},
                    {"lasts", seconds_between(work_began, Clock::now())},
                    {"usual", work == kCopying ? 0.0 : done[work].longest}});
    else if (woken)  // it should have looked by now
      about.update({{"at", "waiting although there is news"},
                    {"lasts", seconds_between(*woken, Clock::now())},
                    {"usual", kToWake}});
    member.heartbeat(about);
  }

  // With the lock held; "": it waits. The first time of each kind, in which memory and code are touched first, tells
  // nothing of the next.
  void works_on(const std::string& what) {
    const Clock::time_point now = Clock::now();
    if (!work.empty()) {
      Done& before = done[work];
      if (before.times++ > 0) before.longest = std::max(seconds_between(work_began, now), 0.99 * before.longest);
    }
    work = what;
    work_began = now;
    woken.reset();  // whatever news there was, it is at it
  }

  void receive(const Message& message) {
    if (message.sender == member.coordinator()) watch.heard(now());
    try {
      if (message.kind == "taken") {
        taken(message);
      } else if (message.kind == "coordinator") {
        const int64_t tenure = message.body.at("tenure").get<int64_t>();
        if (tenure > watch.tenure()) follow(tenure, message.sender, message.body.at("endpoint").get<std::string>());
      } else {
        member.receive(message);
      }
    } catch (const nlohmann::json::exception& malformed) {
      member.report({.kind = "suspect",
                     .body = {{"peer", message.sender},
                              {"reason", std::string("sent a malformed message: ") + malformed.what()}}});
    }
  }

  void seek(const std::optional<SessionOptions::Sighting>& sighting) {
    const auto sight = sighting ? std::optional(sighting->sight) : std::nullopt;
    const Watch::Decision decision = watch.decide(sight, member.index(), now());
    if (decision.what == Watch::Do::leave) member.give_up(decision.reason);
    if (decision.what == Watch::Do::follow) follow(sighting->sight.tenure, sighting->coordinator, sighting->endpoint);
    if (decision.what == Watch::Do::take_over) options.take_over(sighting->sight.tenure);
  }

  void follow(int64_t tenure, PeerId coordinator, const std::string& endpoint) {
    if (coordinator != member.coordinator()) transport->disconnect(member.coordinator());
    transport->connect(coordinator, endpoint);
    watch.follow(tenure, now());
    member.introduce(coordinator, options.about);
  }

  StateDict whole_state(int64_t step) const {
    StateDict whole = state.view();
    const bool fresh = whole.emplace(kStep, Tensor::from(std::vector<int64_t>{step}, {})).second;
    invariant(fresh, "the name of the step is the session's own");
    return whole;
  }

  // Copies parts of the state while the next leaves are computed. Where there are none, the memory for the next is made
  // ready. What follows a copy, and may take as long as the disk and the network need, is for other threads.
  void copy(const std::stop_token& stop) {
    CpuStream alone(1);
    const StreamScope scope(alone);
    while (true) {
      StatePart part;
      {
        Lock lock(mutex);
        changed.wait(lock, [&] { return !parts.empty() || prepared < wanted || stop.stop_requested(); });
        if (parts.empty() && stop.stop_requested()) return;
        if (parts.empty()) {
          prepared = wanted;
          lock.unlock();
          memory.prepare(prepared);
          continue;
        }
        part = std::move(parts.front());
        parts.pop_front();
        ++saving;
        // A disk that needs longer than from one checkpoint to the next is waited for, or memory would run out.
        if (part.to == 0) changed.wait(lock, [&] { return writing < kMostWriting || error || stop.stop_requested(); });
        if (part.to == 0) ++writing;
      }
      const Clock::time_point began = Clock::now();
      StateDict copied = memory.copy(part_of(whole_state(part.step), part.part, part.parts));
      const Lock lock(mutex);
      --uncopied;
      const Clock::time_point now = Clock::now();
      nlohmann::json cost = {{"copy_seconds", seconds_between(began, now)},
                             {"wait_seconds", waits_since ? seconds_between(std::max(began, *waits_since), now) : 0.0}};
      (part.to == 0 ? to_write : to_send).push_back({std::move(part), std::move(copied), std::move(cost)});
      changed.notify_all();
    }
  }

  // Sends or saves what is copied.
  void finish(const std::stop_token& stop, std::deque<Copied>& queue) {
    CpuStream alone(1);
    const StreamScope scope(alone);
    while (true) {
      Copied copied;
      {
        Lock lock(mutex);
        changed.wait(lock, [&] { return !queue.empty() || stop.stop_requested(); });
        if (queue.empty()) return;
        copied = std::move(queue.front());
        queue.pop_front();
      }
      const StatePart& part = copied.part;
      const bool checkpoint = part.to == 0;
      if (checkpoint) {
        save(part, copied.tensors, std::move(copied.cost));
      } else {
        for (Message& message : messages_of(copied.tensors, part)) send(part.to, std::move(message));
        copied.cost.update({{"peer", part.to}, {"part", part.part}, {"parts", part.parts}});
        send_coordinator({.kind = "fed", .step = part.step, .body = std::move(copied.cost)});
      }
      copied = {};
      const Lock lock(mutex);
      --saving;
      if (checkpoint) --writing;
      changed.notify_all();
    }
  }

  void send(PeerId peer, Message message) {
    const Lock lock(mutex);
    message.run = options.run;
    message.sender = options.member.self;
    message.generation = member.generation();
    transport->send(peer, std::move(message));
  }

  void send_coordinator(Message message) {
    PeerId coordinator;
    {
      const Lock lock(mutex);
      coordinator = member.coordinator();
    }
    send(coordinator, std::move(message));
  }

  void save(const StatePart& part, const StateDict& copied, nlohmann::json cost) {
    Message saved{.kind = "saved", .step = part.step, .body = std::move(cost)};
    saved.body.update({{"part", part.part}, {"parts", part.parts}});
    nlohmann::json digests = nlohmann::json::object();
    for (const auto& [name, digest] : digests_of(copied)) digests[name] = digest.hex();
    saved.body["digests"] = std::move(digests);
    const std::filesystem::path directory = options.directory();
    if (directory.empty()) saved.body["streamed"] = true;
    try {
      const CheckpointPart written = directory.empty()
                                         ? stream(part, copied)
                                         : CheckpointStore(directory / "checkpoints")
                                               .write_part(part.step, part_file(part.part, part.parts), copied);
      saved.body["file"] = written.file;
      saved.body["bytes"] = written.bytes;
      saved.body["digest"] = written.digest.hex();
    } catch (const std::exception& failure) {
      saved.body["error"] = failure.what();
    }
    send_coordinator(std::move(saved));
  }

  // To a coordinator that writes it for this worker (elastic/part_stream.h).
  CheckpointPart stream(const StatePart& part, const StateDict& copied) {
    PeerId coordinator;
    {
      const Lock lock(mutex);
      coordinator = member.coordinator();
      streaming = {.step = part.step, .part = part.part, .parts = part.parts};
    }
    return send_part(part.step, part.part, part.parts, copied, [&](Message piece, int64_t end) {
      {
        Lock lock(mutex);
        const bool free = changed.wait_for(lock, kStreamPatience, [&] {
          return end - streaming.taken <= kPartWindow || !streaming.error.empty() ||
                 member.coordinator() != coordinator;
        });
        if (!streaming.error.empty()) elinvar::fail("{}", streaming.error);
        if (!free || member.coordinator() != coordinator)
          elinvar::fail("the coordinator takes no more of part {}", part.part);
      }
      send(coordinator, std::move(piece));
    });
  }

  // With the lock held.
  void taken(const Message& m) {
    if (m.step != streaming.step || m.body.at("part") != streaming.part || m.body.at("parts") != streaming.parts)
      return;
    if (m.body.contains("error")) streaming.error = m.body["error"].get<std::string>();
    else streaming.taken = m.body.at("offset").get<int64_t>();
  }

  // For this worker's part of the next checkpoint.
  void want_memory() {
    if (member.generation() == wanted_for || !member.active()) return;
    wanted_for = member.generation();
    wanted = SnapshotMemory::bytes_for(part_of(whole_state(0), member.index(), member.members()));
    changed.notify_all();
  }

  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }

  SessionOptions options;
  std::unique_ptr<Transport> transport;
  StateAccess state;
  std::mutex mutex;
  std::condition_variable changed;
  bool pristine = true;  // the state is still that of a new network
  Member member;
  Watch watch;
  std::deque<StatePart> parts;
  SnapshotMemory memory;
  int64_t wanted_for = 0;  // the generation
  int64_t wanted = 0;      // bytes of a part of the state in this generation,
  int64_t prepared = 0;    // and those that the copier has memory for
  std::deque<Copied> to_write, to_send;
  int uncopied = 0;  // parts that still need the state as it is,
  int saving = 0;    // those that are not yet written or sent,
  int writing = 0;   // and of these the parts of checkpoints that are copied
  struct Streaming {
    int64_t step = -1;
    int part = 0, parts = 0;
    int64_t taken = 0;
    std::string error = {};
  } streaming;
  std::optional<Clock::time_point> waits_since;  // the loop, for parts to be copied
  std::exception_ptr error;
  int64_t leaves = 0;
  int64_t work_step = 0;  // of the leaves that are being computed
  bool listening = false;
  std::string work;  // that the loop is at; "": it waits
  Clock::time_point work_began;
  std::optional<Clock::time_point> woken;  // while it waited, and it has not looked since
  struct Done {
    int64_t times = 0;
    double longest = 0;
  };
  std::map<std::string, Done> done;
  Clock::time_point leaf_began;
  Reduced reduced;
  double reduce_seconds = 0;
  std::jthread listener, copier, sender, writer;
};

Session::Session(SessionOptions options, std::unique_ptr<Transport> transport, StateAccess state)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(transport), std::move(state))) {}
Session::~Session() = default;

int64_t Session::step() const {
  const Lock lock(impl_->mutex);
  return impl_->member.step();
}

bool Session::knows_layout() const {
  const Lock lock(impl_->mutex);
  return impl_->member.knows_layout();
}

void Session::learn_layout(const Leaf& leaf) {
  const Lock lock(impl_->mutex);
  impl_->member.learn_layout(leaf);
}

bool Session::begin() {
  Impl& s = *impl_;
  Lock lock(s.mutex);
  s.works_on("");
  s.reduced = {};
  while (true) {
    s.rethrow();
    const Member::Next next = s.member.next();
    s.flush();
    switch (next) {
      case Member::Next::done:
        return false;
      case Member::Next::wait:
        s.wait(lock);
        continue;
      case Member::Next::leaves:
      case Member::Next::copy:
        s.listening = next == Member::Next::copy;
        s.want_memory();
        s.work_step = s.member.step();
        s.works_on("preparing");
        return true;
      case Member::Next::load: {
        const Member::Load load = s.member.take_load();
        s.wait_for_copies(lock);
        s.works_on("loading the state");
        lock.unlock();
        if (load.restore) {
          if (*load.restore > 0 || !s.pristine) s.state.restore(*load.restore);
          s.pristine = *load.restore == 0;
        } else {
          s.pristine = false;
          fill(s.whole_state(load.step), load.messages);
        }
        lock.lock();
        s.works_on("");
        s.member.loaded(load);
        s.flush();
        continue;
      }
    }
  }
}

void Session::works_on(const std::string& what) {
  const Lock lock(impl_->mutex);
  impl_->works_on(what);
}

std::optional<int> Session::next() {
  const Lock lock(impl_->mutex);
  const std::vector<int> todo = impl_->member.todo();
  if (impl_->listening || impl_->member.step() != impl_->work_step || todo.empty()) return std::nullopt;
  impl_->leaf_began = Clock::now();
  impl_->works_on("a leaf");
  return todo[0];
}

void Session::add(int vrank, Leaf leaf) {
  const Lock lock(impl_->mutex);
  const std::chrono::duration<double> seconds = Clock::now() - impl_->leaf_began;
  ++impl_->leaves;
  impl_->works_on("");
  impl_->member.add(impl_->work_step, vrank, std::move(leaf), seconds.count());
}

bool Session::reduce() {
  Impl& s = *impl_;
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  if (!s.listening) {
    std::optional<Digest> state;
    if (s.member.digest_due()) {
      const int64_t step = std::min(s.member.step(), s.options.member.steps);
      s.works_on("the state's digest");
      lock.unlock();
      state = digest(s.whole_state(step));
      lock.lock();
    }
    s.member.contribute(state);
    s.flush();
  }
  s.works_on("");
  while (true) {
    s.rethrow();
    const Member::Progress progress = s.member.reduce();
    s.flush();
    if (progress == Member::Progress::abandoned) return false;
    if (progress == Member::Progress::complete) break;
    s.wait(lock);
  }
  const Clock::time_point reduced = Clock::now();
  s.reduce_seconds = seconds_between(began, reduced);
  s.waits_since = reduced;
  s.wait_for_copies(lock);
  s.waits_since.reset();
  s.rethrow();
  s.works_on("the update");
  s.reduced = s.member.take_reduced();
  const std::string contradiction = s.member.contradiction();
  if (!contradiction.empty())
    elinvar::fail("the members' states after step {} differ: {}; a machine or its memory is at fault", s.work_step,
                  contradiction);
  if (s.work_step < s.options.member.steps && s.reduced.count == 0)
    elinvar::fail("step {}: no target in the whole batch counts, so there is no mean to take", s.work_step + 1);
  return true;
}

const Reduced& Session::reduced() const { return impl_->reduced; }

void Session::advance(const nlohmann::json& extra) {
  Impl& s = *impl_;
  s.pristine = false;
  const Reduced& r = s.reduced;
  nlohmann::json facts = {{"extra", extra}};
  if (r.state) facts["state"] = r.state->hex();
  if (s.work_step < s.options.member.steps) {
    Hasher gradient;
    for (const Tensor& tensor : r.gradients) gradient.add(digest(tensor));
    facts["batch"] = r.batch.hex();
    facts["loss"] = std::bit_cast<uint64_t>(r.loss);
    facts["gradient"] = gradient.digest().hex();
    facts["count"] = r.count;
    facts["correct"] = r.correct;
    facts["samples"] = r.samples;
    facts["seconds"] = r.seconds;
    facts["reduce_seconds"] = s.reduce_seconds;
  }
  const Lock lock(s.mutex);
  s.works_on("");
  s.member.advance(facts);
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
  impl_->member.report({.kind = "failed", .body = {{"reason", reason}, {"exit_code", exit_code}}});
  impl_->flush();
}

}  // namespace elinvar
