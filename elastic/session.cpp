#include "elastic/session.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "elastic/digest_file.h"
#include "elastic/replay.h"
#include "elastic/self_sabotage.h"
#include "elastic/snapshot.h"
#include "elastic/state_copier.h"
#include "elastic/state_parts.h"
#include "elastic/whole_state.h"
#include "elastic/work_clock.h"
#include "tensor/check.h"
#include "tensor/digest_tree.h"
#include "tensor/ops/copy.h"

namespace elinvar {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

constexpr size_t kMostSaved = 2;
constexpr size_t kMostOfTensors = size_t{256} << 10;

struct Session::Impl {
  Impl(SessionOptions given, std::unique_ptr<Transport> with, StateAccess access)
      : options(std::move(given)),
        transport(std::move(with)),
        state(std::move(access)),
        sabotage(options.faults),
        member(options_of_member()),
        watch(options.watch, options.tenure, now()),
        coordinator_endpoint(options.coordinator_endpoint),
        copier({.state = [this](const StatePart& part) { return whole_state(part.step, part.pace); },
                .directory = options.directory,
                .send = [this](PeerId peer, Message message) { send(peer, std::move(message)); },
                .failed = [this](std::exception_ptr failure) { failed(std::move(failure)); }},
               options.coordinator) {
    std::vector<TensorLayout> layout;
    for (const auto& [name, tensor] : whole_state(0, {})) layout.push_back(layout_of(name, tensor));
    options.about["state"] = to_json(layout);
    {
      const Lock lock(mutex);
      member.introduce(options.coordinator, options.about);
      flush();
    }
    listener = std::jthread([this](std::stop_token stop) {
      try {
        listen(stop);
      } catch (...) {
        copier.give_up();
        failed(std::current_exception());
      }
    });
    // Under this name its time on a processor can be told apart (bench elastic).
    pthread_setname_np(listener.native_handle(), "listener");
  }

  ~Impl() {
    copier.finish();
    {
      const Lock lock(mutex);
      flush();
    }
    listener.request_stop();
    transport->wake();
    listener.join();
  }

  static Seconds now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

  void failed(std::exception_ptr failure) {
    const Lock lock(mutex);
    if (!error) error = std::move(failure);
    changed.notify_all();
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
          if (sabotage.drops(member.id(), member.index() == 0, action.message.step, action.message.kind)) {
            tell_sabotage("drop", action.message.step, {{"message", action.message.kind}});
            break;
          }
          action.message.run = options.run;
          action.message.sender = options.member.self;
          transport->send(action.peer, std::move(action.message));
          break;
      }
    }
    for (StatePart& part : member.take_parts()) copier.add(std::move(part));
    work.news(now());
    changed.notify_all();
  }

  // Of single tensors of the leaves of this step; `size` is that of a leaf's. The trailer must not become too long.
  bool tells_tensors(size_t size) const {
    const bool all = options.ledger.leaves == LedgerOptions::Leaves::all;
    return due(work_step + 1, options.ledger.tensors_every) &&
           size * static_cast<size_t>(all ? options.member.vranks : 1) <= kMostOfTensors;
  }

  MemberOptions options_of_member() {
    MemberOptions given = options.member;
    if (sabotage.flips_later())
      given.spoil = [this](int64_t step, int, std::vector<Tensor>& sums) {
        flip(Fault::Flips::reduced, step, sums, {});
      };
    return given;
  }

  // With the lock held; whether it happened.
  bool flip(Fault::Flips what, int64_t step, std::span<Tensor> tensors, nlohmann::json about) {
    if (replay) return false;  // of steps that are past
    const auto bit = sabotage.flips(what, member.id(), member.index() == 0, step, tensors);
    if (!bit) return false;
    about.update({{"bit", *bit}, {"what", name_of(what)}});
    tell_sabotage("flip", step, std::move(about));
    return true;
  }

  // In what the update has just made: the tensors of the state whose names begin so.
  void flip_state(Fault::Flips what, const std::string& prefix) {
    std::vector<Tensor> live, tensors;
    for (const auto& [name, tensor] : state.view())
      if (name.starts_with(prefix)) live.push_back(tensor);
    tensors = live;
    const Lock lock(mutex);
    if (!flip(what, work_step, tensors, nlohmann::json::object())) return;
    for (size_t i = 0; i < live.size(); ++i)
      if (!tensors[i].shares_storage(live[i])) copy(tensors[i], live[i]);
  }

  void tell_sabotage(const char* what, int64_t step, nlohmann::json fields) {
    fields.update({{"cause", "chaos"}, {"worker", member.id()}, {"step", step + 1}});
    transport->send(member.coordinator(), {.kind = "sabotaged",
                                           .run = options.run,
                                           .sender = options.member.self,
                                           .body = {{"event", what}, {"fields", std::move(fields)}}});
  }

  // The loop, until there is news.
  void wait(Lock& lock) {
    work.looked();
    changed.wait(lock);
  }
  void wait_for_copies(Lock& lock, std::optional<Clock::time_point> since = {}) {
    work.at(kCopying, now());
    while (!copier.copied()) {
      lock.unlock();
      copier.wait(since);
      lock.lock();
    }
    work.at("", now());
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
    about.update(work.heartbeat(now()));
    if (about.contains("idle")) about["misses"] = member.missing();
    member.heartbeat(about);
  }

  void receive(const Message& message) {
    if (message.kind != "alive") work.heard(now());
    if (message.sender == member.coordinator()) {
      if (message.kind == "alive") watch.answered();
      watch.heard(now());
    }
    try {
      if (message.kind == "taken") {
        copier.taken(message);
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
    if (decision.what == Watch::Do::reconnect) {
      transport->connect(member.coordinator(), coordinator_endpoint);
      member.introduce(member.coordinator(), options.about);
      flush();
      for (const Message& message : saved) transport->send(member.coordinator(), message);
    }
    if (decision.what == Watch::Do::follow) follow(sighting->sight.tenure, sighting->coordinator, sighting->endpoint);
    if (decision.what == Watch::Do::take_over) options.take_over(sighting->sight.tenure);
  }

  void follow(int64_t tenure, PeerId coordinator, const std::string& endpoint) {
    if (coordinator != member.coordinator()) transport->disconnect(member.coordinator());
    transport->connect(coordinator, endpoint);
    coordinator_endpoint = endpoint;
    watch.follow(tenure, now());
    copier.follow(coordinator);
    member.introduce(coordinator, options.about);
  }

  bool adaptive() const { return options.member.scaling.batch > 0; }

  StateDict whole_state(int64_t step, const Pace& pace) const {
    return elinvar::whole_state(state.view(), step, adaptive() ? std::optional(pace) : std::nullopt);
  }

  void send(PeerId peer, Message message) {
    const Lock lock(mutex);
    message.run = options.run;
    message.sender = options.member.self;
    message.generation = member.generation();
    if (message.kind == "saved") saved.push_back(message);
    if (saved.size() > kMostSaved) saved.pop_front();
    transport->send(peer != 0 ? peer : member.coordinator(), std::move(message));
  }

  // What the loop is about: the job, or a replay for an audit.
  Member& at_work() { return replay ? replay->member() : member; }

  // With the lock held, which is not while the state is restored. From a checkpoint that cannot be seen nothing
  // follows.
  void begin_replay(Lock& lock) {
    const Member::Replay steps = member.begin_replay();
    wait_for_copies(lock);
    work.at("loading the state", now());
    lock.unlock();
    const bool restored = state.restore(steps.from).has_value();
    lock.lock();
    work.at("", now());
    if (restored) replay.emplace(options.member, steps);
  }

  // For this worker's part of the next checkpoint.
  void want_memory() {
    if (member.generation() == wanted_for || !member.active()) return;
    wanted_for = member.generation();
    copier.prepare(SnapshotMemory::bytes_for(part_of(whole_state(0, {}), member.index(), member.members())));
  }

  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }

  SessionOptions options;
  std::unique_ptr<Transport> transport;
  StateAccess state;
  std::mutex mutex;
  std::condition_variable changed;
  bool pristine = !options.imported;  // the state is that which the run begins with
  SelfSabotage sabotage;
  Member member;
  std::deque<Message> saved;  // what the coordinator was told of the last checkpoints
  Watch watch;
  std::string coordinator_endpoint;
  WorkClock work;          // of the loop
  int64_t wanted_for = 0;  // the generation whose parts of the state there is memory for
  std::exception_ptr error;
  int64_t leaves = 0;
  int64_t work_step = 0;  // of the leaves that are being computed
  bool listening = false;
  bool last = false;
  Clock::time_point leaf_began;
  std::vector<Tensor> opened;  // gradients of the leaf that is given one by one
  Reduced reduced;
  double reduce_seconds = 0;
  std::optional<Replay> replay;
  StateCopier copier;
  std::jthread listener;
};

namespace {

// What digests.jsonl tells of a step (elastic/digest_file.h), `leaves` being those that the ledger names.
nlohmann::json digests_of_step(const Reduced& reduced, const nlohmann::json& leaves, const std::string& gradient) {
  nlohmann::json json = {{"gradient", gradient}, {"leaves", nlohmann::json::object()}};
  std::string batches, losses;
  for (const LeafFacts& leaf : reduced.facts) {
    batches += short_hex(leaf.batch);
    losses += fmt::format("{:016x}", std::bit_cast<uint64_t>(leaf.loss_sum));
  }
  json["batches"] = batches;
  json["losses"] = losses;
  for (const auto& [vrank, digest] : leaves.items())
    if (const std::string& tensors = reduced.facts[std::stoul(vrank)].tensors; !tensors.empty())
      json["leaves"][vrank] = tensors;
  return json;
}

}  // namespace

Session::Session(SessionOptions options, std::unique_ptr<Transport> transport, StateAccess state)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(transport), std::move(state))) {}
Session::~Session() = default;

int64_t Session::step() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().step();
}

bool Session::last() const { return impl_->last; }

Pace Session::pace() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().pace();
}

bool Session::knows_layout() const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().knows_layout();
}

void Session::learn_layout(const Leaf& leaf) {
  const Lock lock(impl_->mutex);
  impl_->at_work().learn_layout(leaf);
}

bool Session::begin() {
  Impl& s = *impl_;
  Lock lock(s.mutex);
  s.work.at("", s.now());
  s.reduced = {};
  while (true) {
    s.rethrow();
    if (s.replay && s.replay->over()) s.replay.reset();
    const Member::Next next = s.replay && !s.member.outcome() ? Member::Next::leaves : s.member.next();
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
        s.work_step = s.at_work().step();
        s.last = s.at_work().last();
        s.work.at("preparing", s.now());
        return true;
      case Member::Next::replay:
        s.begin_replay(lock);
        continue;
      case Member::Next::load: {
        Member::Load load = s.member.take_load();
        s.wait_for_copies(lock);
        s.work.at("loading the state", s.now());
        lock.unlock();
        bool done = true;
        if (load.restore) {
          std::optional<Pace> pace = Pace{};
          if (*load.restore > 0 || !s.pristine) pace = s.state.restore(*load.restore);
          done = pace.has_value();
          if (done) s.pristine = *load.restore == 0;
          if (done) load.pace = s.pristine ? Pace{.batch = s.options.member.scaling.batch} : *pace;
        } else {
          s.pristine = false;
          fill(s.whole_state(load.step, load.pace), load.messages);
        }
        lock.lock();
        s.work.at("", s.now());
        if (done) s.member.loaded(load);
        else s.member.cannot_load(load);
        s.flush();
        continue;
      }
    }
  }
}

void Session::works_on(const std::string& what) {
  const Lock lock(impl_->mutex);
  impl_->work.at(what, impl_->now());
}

std::optional<int> Session::next() {
  const Lock lock(impl_->mutex);
  const std::vector<int> todo = impl_->at_work().todo();
  if (impl_->listening || impl_->at_work().step() != impl_->work_step || todo.empty()) return std::nullopt;
  impl_->leaf_began = Clock::now();
  impl_->work.at("a leaf", impl_->now());
  return todo[0];
}

bool Session::owns(int vrank) const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().owns(vrank);
}

void Session::reads(int vrank, Tensor& input) {
  const Lock lock(impl_->mutex);
  impl_->flip(Fault::Flips::input, impl_->work_step, {&input, 1}, {{"vrank", vrank}});
}

void Session::add(int vrank, Leaf leaf) {
  Impl& s = *impl_;
  Lock lock(s.mutex);
  const std::chrono::duration<double> seconds = Clock::now() - s.leaf_began;
  ++s.leaves;
  if (!s.opened.empty()) leaf.gradients = std::exchange(s.opened, {});
  s.flip(Fault::Flips::leaf, s.work_step, leaf.gradients, {{"vrank", vrank}});
  const bool named =
      s.at_work().owns(vrank) && names_leaf(s.options.ledger, s.work_step, vrank, s.options.member.vranks);
  if (!leaf.gradients.empty() && named) {
    lock.unlock();
    std::vector<Tensor> tensors = leaf.gradients;
    tensors.insert(tensors.end(), leaf.terms.begin(), leaf.terms.end());
    TensorsDigest digested = digest_in_order(tensors);
    leaf.facts.gradient = digested.digest;
    if (s.tells_tensors(digested.tensors.size())) leaf.facts.tensors = std::move(digested.tensors);
    lock.lock();
  }
  if (s.at_work().audits_leaf(s.work_step, vrank)) {
    lock.unlock();
    leaf.digest = digest_of(leaf);
    lock.lock();
  }
  s.work.at("", s.now());
  s.at_work().add(s.work_step, vrank, std::move(leaf), seconds.count());
}

// A drill's flips fall on whole leaves.
bool Session::opens(int vrank) const {
  const Lock lock(impl_->mutex);
  return impl_->at_work().step() == impl_->work_step && impl_->at_work().opens(vrank) && !impl_->sabotage.flips_later();
}

void Session::open(int vrank, int64_t count, const std::vector<Tensor>& terms) {
  const Lock lock(impl_->mutex);
  impl_->member.open(impl_->work_step, vrank, count, terms);
  impl_->flush();
}

// Buckets are added up here, between two kernels of the backward pass: a thread beside it would only take the
// processors from it.
void Session::put(size_t gradient, Tensor value) {
  Impl& s = *impl_;
  const Clock::time_point began = Clock::now();
  const Lock lock(s.mutex);
  s.opened.resize(std::max(s.opened.size(), gradient + 1));
  s.opened[gradient] = value;
  s.member.put(static_cast<int>(gradient), std::move(value));
  s.flush();
  while (s.member.work()) s.flush();
  s.leaf_began += Clock::now() - began;  // it is no part of what a leaf takes
}

bool Session::reduce() {
  Impl& s = *impl_;
  const Clock::time_point began = Clock::now();
  Lock lock(s.mutex);
  if (!s.listening) {
    std::optional<Digest> state;
    StateDigests parts;
    if (s.at_work().digest_due()) {
      const int64_t step = std::min(s.member.step(), s.member.steps().value_or(s.member.step()));
      const Pace pace = s.member.made();
      s.work.at("the state's digest", s.now());
      lock.unlock();
      StateSum sum = state_sum(to_json(digests_of(s.whole_state(step, pace))));
      state = sum.digest;
      parts = std::move(sum.parts);
      lock.lock();
    }
    s.at_work().contribute(state, parts);
    s.flush();
  }
  s.work.at("", s.now());
  while (true) {
    s.rethrow();
    const Member::Progress progress = s.at_work().reduce();
    s.flush();
    if (progress == Member::Progress::abandoned) return false;
    if (progress == Member::Progress::complete) break;
    s.wait(lock);
  }
  const Clock::time_point reduced = Clock::now();
  s.reduce_seconds = std::chrono::duration<double>(reduced - began).count();
  s.wait_for_copies(lock, reduced);
  s.rethrow();
  s.work.at("the update", s.now());
  s.reduced = s.at_work().take_reduced();
  if (s.member.members() == 1) s.flip(Fault::Flips::reduced, s.work_step, s.reduced.gradients, {});  // no exchange
  const std::string contradiction = s.at_work().contradiction();
  if (!contradiction.empty())
    elinvar::fail("the members differ after step {}: {}; a machine or its memory is at fault", s.work_step,
                  contradiction);
  if (!s.last && s.reduced.count == 0)
    elinvar::fail("step {}: no target in the whole batch counts, so there is no mean to take", s.work_step + 1);
  return true;
}

const Reduced& Session::reduced() const { return impl_->reduced; }

bool Session::leads() const {
  const Lock lock(impl_->mutex);
  return !impl_->replay && impl_->member.index() == 0;
}

void Session::show(std::string bytes) {
  Impl& s = *impl_;
  const auto owner = std::make_shared<const std::string>(std::move(bytes));
  const Blob blob{owner, reinterpret_cast<const std::byte*>(owner->data()), owner->size()};
  const Lock lock(s.mutex);
  s.transport->send(s.member.coordinator(), {.kind = "shown",
                                             .run = s.options.run,
                                             .sender = s.options.member.self,
                                             .generation = s.member.generation(),
                                             .step = s.work_step + 1,
                                             .blobs = {blob}});
}

void Session::advance(const nlohmann::json& extra) {
  Impl& s = *impl_;
  s.pristine = false;
  if (s.sabotage.flips_later()) {
    s.flip_state(Fault::Flips::parameter, "model.");
    s.flip_state(Fault::Flips::optimizer, "optimizer.");
  }
  const Reduced& r = s.reduced;
  nlohmann::json facts = {{"extra", extra}};
  if (r.state) {
    facts["state"] = r.state->hex();
    facts["state_digests"] = {r.state_digests.tensors, r.state_digests.chunks};
  }
  if (!s.last) {
    std::vector<Tensor> tensors = r.gradients;
    tensors.insert(tensors.end(), r.terms.begin(), r.terms.end());
    const TensorsDigest gradient = digest_in_order(tensors);
    facts["batch"] = r.batch.hex();
    facts["loss"] = std::bit_cast<uint64_t>(r.loss);
    facts["leaves"] = nlohmann::json::object();
    for (size_t v = 0; v < r.facts.size(); ++v)
      if (r.facts[v].gradient &&
          names_leaf(s.options.ledger, s.work_step, static_cast<int>(v), s.options.member.vranks))
        facts["leaves"][std::to_string(v)] = r.facts[v].gradient->hex();
    facts["gradient"] = gradient.digest.hex();
    facts["lr"] = std::bit_cast<uint64_t>(extra.at("lr").get<double>());
    if (due(s.work_step + 1, s.options.ledger.tensors_every))
      facts["digests"] = digests_of_step(r, facts["leaves"], gradient.tensors);
    facts["count"] = r.count;
    facts["correct"] = r.correct;
    facts["samples"] = r.samples;
    facts["seconds"] = r.seconds;
    facts["reduce_seconds"] = s.reduce_seconds;
    if (s.adaptive()) facts["batch_size"] = r.pace.batch;
  }
  const Lock lock(s.mutex);
  if (s.adaptive() && s.member.steps()) facts["end"] = *s.member.steps();
  s.work.at("", s.now());
  s.at_work().advance(facts);
  if (s.replay) (void)s.replay->member().take_actions();
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
