// A session: its thread that listens to the network and carries out the member's actions.
#include <fmt/format.h>

#include <algorithm>

#include "elastic/ledger/digest_file.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/base/failure.h"
#include "tensor/base/threads.h"
#include "tensor/heap.h"

namespace elinvar {

namespace {

constexpr size_t kMostSaved = 2;

// Notes in a report of facts when it is sent.
void stamp(Payload& payload, Seconds at) {
  const auto replace = [&](auto report) {
    report.told.at = at;
    payload = std::move(report);
  };
  visit(
      payload, [&](const messages::Facts& facts) { replace(facts); },
      [&](const messages::Alive& alive) { replace(alive); });
}

}  // namespace

Session::Impl::Impl(SessionOptions given, Transport& with, StateAccess access)
    : options(std::move(given)),
      transport(&with),
      state(std::move(access)),
      worker_faults(options.faults),
      member(options_of_member()),
      watch(options.watch, options.term, now()),
      coordinator_endpoint(options.coordinator_endpoint),
      copier(
          {.state = [this](const StatePart& part) { return whole_state(part.step, part.scaling_state, part.zero); },
           .directory = options.directory,
           .send = [this](PeerId peer, int64_t step, Payload payload) { send(peer, step, std::move(payload)); },
           .failed = [this](std::exception_ptr failure) { failed(std::move(failure)); },
           .slices = [this](const StatePart& part) { return state_of(part.buckets, part.zero); },
           .move = [this](const StatePart& part, const std::vector<StateSlice>& slices) { send_shards(part, slices); }},
          options.coordinator) {
  if (options.nccl) former.emplace(options.nccl, about_groups(), options.group_patience);
  std::vector<TensorLayout> layout;
  const int zero = member.layout().zero();
  for (const auto& [name, tensor] : whole_state(0, {}, zero)) layout.push_back(layout_of(name, tensor));
  if (zero > 0) {
    for (TensorLayout& tensor : state.shards->layout(zero)) layout.push_back(std::move(tensor));
    std::sort(layout.begin(), layout.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  options.about.shards = member.layout().shard_buckets().count();
  options.about.state = std::move(layout);
  {
    const Lock lock(mutex);
    member.introduce(options.coordinator, options.about);
    flush();
  }
  // The name lets a benchmark measure the thread's processor time (bench elastic).
  listener = start_thread("listener", [this](const std::stop_token& stop) {
    try {
      listen(stop);
    } catch (...) {
      copier.give_up();
      failed(std::current_exception());
    }
  });
}

Session::Impl::~Impl() {
  copier.finish();
  try {
    const Lock lock(mutex);
    flush();
  } catch (const std::exception&) {  // peers that wait for the last messages see the connection end
  }
  listener.request_stop();
  transport->wake();
  listener.join();
  former.reset();
}

MemberOptions Session::Impl::options_of_member() {
  MemberOptions given = options.member;
  given.groups = options.nccl != nullptr;
  if (worker_faults.flips_later())
    given.spoil = [this](int64_t step, int, std::vector<Tensor>& sums) { flip(Fault::Flips::reduced, step, sums, {}); };
  return given;
}

// Called from the forming thread.
GroupFormer::Tells Session::Impl::about_groups() {
  return {.named =
              [this](int64_t generation, const NcclId& id) {
                const Lock lock(mutex);
                member.groups().named(generation, id);
                flush();
              },
          .formed =
              [this](int64_t generation, std::shared_ptr<GpuGroup> group) {
                const Lock lock(mutex);
                member.groups().formed(generation, std::move(group));
              },
          .failed =
              [this](int64_t generation, const std::string& reason) {
                const Lock lock(mutex);
                member.groups().not_formed(generation, reason);
                flush();
              },
          .not_shrunk =
              [this](int64_t generation) {
                const Lock lock(mutex);
                member.groups().not_shrunk(generation);
                flush();
              },
          // No bit depends on groups: without one the generation exchanges through the hosts.
          .broke =
              [this](int64_t generation, const std::string& reason) {
                try {
                  const Lock lock(mutex);
                  member.groups().not_formed(generation, "what there was to tell of it could not be told: " + reason);
                  flush();
                } catch (...) {
                  failed(std::current_exception());
                }
              }};
}

void Session::Impl::flush() {
  give_wanted();
  give_parameters();
  for (Action& action : member.outbox().take()) {
    switch (action.what) {
      case Action::What::connect:
        transport->connect(action.peer, action.endpoint);
        break;
      case Action::What::disconnect:
        transport->disconnect(action.peer);
        break;
      case Action::What::send: {
        const std::string kind = action.message.payload.kind().name;
        if (worker_faults.drops(member.position().id(), member.position().index == 0, action.message.step, kind)) {
          tell_fault("drop", action.message.step, {{"message", kind}});
          break;
        }
        const auto point = WorkerFaults::point_of(kind);
        const int64_t step = action.message.step;
        if (point == Fault::Point::part) die(*point, step);
        stamp(action.message.payload, now());
        transmit(action.peer, std::move(action.message));
        if (point) die(*point, step);
        break;
      }
    }
  }
  if (!replay)
    for (StatePart& part : member.transfers().take_parts()) copier.add(std::move(part));
  if (former) {
    for (const GroupRequest& request : member.groups().take_requests()) former->form(request);
    former->drop_before(member.position().promised, member.groups().spare());
  }
  work.news(now());
  changed.notify_all();
}

void Session::Impl::listen(const std::stop_token& stop) {
  const auto next_beat = [&] {
    return Clock::now() + (watch.out_of_touch(now()) ? options.heartbeat / 2 : options.heartbeat);
  };
  Clock::time_point beat = next_beat();
  while (!stop.stop_requested()) {
    Arrival arrival = transport->wait(beat);
    const Activity activity("messages");
    Lock lock(mutex);
    if (arrival.what == Arrival::What::message && arrival.packet.run == options.run) receive(arrival.packet);
    if (arrival.what == Arrival::What::lost) {
      if (arrival.peer == member.position().coordinator) {
        watch.lost();
        beat = std::min(beat, next_beat());
      }
      member.lost(arrival.peer, arrival.reason);
    }
    if (Clock::now() >= beat) {
      beat = next_beat();
      heartbeat();
      flush();
      if (watch.out_of_touch(now()) && !member.outcome()) {
        lock.unlock();
        const auto recorded = options.look ? options.look() : std::nullopt;  // may wait for a disk
        lock.lock();
        seek(recorded);
      }
    }
    flush();
  }
}

void Session::Impl::heartbeat() {
  messages::Alive alive{.work = work.heartbeat(now()),
                        .leaves = gradients_computed,
                        .resident = static_cast<int64_t>(resident_memory()),
                        .gpu_peak = gpu_peak,
                        .segment_seconds = segment_seconds,
                        .answer = watch.asks(now())};
  if (alive.work.what.empty()) alive.work.misses = member.missing();
  member.heartbeat(std::move(alive));
}

void Session::Impl::receive(const Packet& packet) {
  Message message;
  try {
    message = message_of(packet);
  } catch (const UsageError& malformed) {
    return member.outbox().report(
        messages::Suspect{packet.sender, fmt::format("sent a malformed '{}': {}", packet.kind, malformed.what())});
  }
  const bool of_coordinator = message.sender == member.position().coordinator;
  const bool answer = message.as<messages::Heard>() != nullptr;
  if (!answer) work.heard(now());
  if (of_coordinator && answer) watch.answered();
  if (of_coordinator) watch.heard(now());
  const bool handled = visit(
      message.payload, [&](const messages::Heard&) {},
      [&](const messages::Taken& taken) { copier.piece_taken(message.step, taken); },
      [&](const messages::NewCoordinator& other) {
        if (other.term > watch.term()) follow(other.term, message.sender, other.endpoint);
      });
  if (handled) return;
  // Arrives after the answers to a fence: the reduction of the interrupted step begins again.
  if (const auto* start = message.as<messages::Start>(); start && !start->completed.empty())
    worker_faults.interrupted(start->record.first_step);
  member.receive(message);
}

void Session::Impl::seek(const std::optional<SessionOptions::RecordedCoordinator>& recorded) {
  const auto observation = recorded ? std::optional(recorded->observation) : std::nullopt;
  const Watch::Decision decision = watch.decide(observation, member.position().index, now());
  if (decision.what == Watch::Do::leave) member.give_up(decision.reason);
  if (decision.what == Watch::Do::reconnect) {
    transport->connect(member.position().coordinator, coordinator_endpoint);
    member.introduce(member.position().coordinator, options.about);
    flush();
    for (const Message& message : saved) transmit(member.position().coordinator, message);
  }
  if (decision.what == Watch::Do::follow) follow(recorded->observation.term, recorded->coordinator, recorded->endpoint);
  if (decision.what == Watch::Do::take_over) options.take_over(recorded->observation.term);
}

void Session::Impl::follow(int64_t term, PeerId coordinator, const std::string& endpoint) {
  if (coordinator != member.position().coordinator) transport->disconnect(member.position().coordinator);
  transport->connect(coordinator, endpoint);
  coordinator_endpoint = endpoint;
  watch.follow(term, now());
  copier.follow(coordinator);
  member.introduce(coordinator, options.about);
}

void Session::Impl::send(PeerId peer, int64_t step, Payload payload) {
  const Lock lock(mutex);
  Message message{.generation = member.position().number(), .step = step, .payload = std::move(payload)};
  if (message.as<messages::Saved>()) saved.push_back(message);
  if (saved.size() > kMostSaved) saved.pop_front();
  transmit(peer != 0 ? peer : member.position().coordinator, std::move(message));
}

void Session::Impl::transmit(PeerId peer, Message message) {
  message.sender = options.member.self;
  transport->send(peer, packet_of(std::move(message), options.run));
}

}  // namespace elinvar
