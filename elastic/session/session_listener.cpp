// A session: its thread that listens to the network, and what it does for the member there.
#include <algorithm>

#include "elastic/ledger/digest_file.h"
#include "elastic/session/session_impl.h"
#include "tensor/base/activity.h"
#include "tensor/base/threads.h"

namespace elinvar {

constexpr size_t kMostSaved = 2;

Session::Impl::Impl(SessionOptions given, Transport& with, StateAccess access)
    : options(std::move(given)),
      transport(&with),
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
  if (options.nccl) former.emplace(options.nccl, about_groups(), options.group_patience);
  std::vector<TensorLayout> layout;
  for (const auto& [name, tensor] : whole_state(0, {})) layout.push_back(layout_of(name, tensor));
  options.about["state"] = to_json(layout);
  {
    const Lock lock(mutex);
    member.introduce(options.coordinator, options.about);
    flush();
  }
  // Under this name its time on a processor can be told apart (bench elastic).
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
  if (sabotage.flips_later())
    given.spoil = [this](int64_t step, int, std::vector<Tensor>& sums) { flip(Fault::Flips::reduced, step, sums, {}); };
  return given;
}

// From the thread that forms them.
GroupFormer::Tells Session::Impl::about_groups() {
  return {.named =
              [this](int64_t generation, const NcclId& id) {
                const Lock lock(mutex);
                member.group_named(generation, id);
                flush();
              },
          .formed =
              [this](int64_t generation, std::shared_ptr<GpuGroup> group) {
                const Lock lock(mutex);
                member.group_formed(generation, std::move(group));
              },
          .failed =
              [this](int64_t generation, const std::string& reason) {
                const Lock lock(mutex);
                member.group_not_formed(generation, reason);
                flush();
              },
          .not_shrunk =
              [this](int64_t generation) {
                const Lock lock(mutex);
                member.group_not_shrunk(generation);
                flush();
              },
          // No bit depends on groups: the generation goes through the hosts.
          .broke =
              [this](int64_t generation, const std::string& reason) {
                try {
                  const Lock lock(mutex);
                  member.group_not_formed(generation, "what there was to tell of it could not be told: " + reason);
                  flush();
                } catch (...) {
                  failed(std::current_exception());
                }
              }};
}

void Session::Impl::flush() {
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
        if (tells_facts(action.message)) action.message.body["now"] = now();
        action.message.run = options.run;
        action.message.sender = options.member.self;
        transport->send(action.peer, std::move(action.message));
        break;
    }
  }
  if (!replay)
    for (StatePart& part : member.take_parts()) copier.add(std::move(part));
  if (former) {
    for (const GroupRequest& request : member.take_group_requests()) former->form(request);
    former->drop_before(member.oldest_group(), member.spare_group());
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
    if (arrival.what == Arrival::What::message && arrival.message.run == options.run) receive(arrival.message);
    if (arrival.what == Arrival::What::lost) {
      if (arrival.peer == member.coordinator()) {
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
        const auto sighting = options.look ? options.look() : std::nullopt;  // it may wait for a disk
        lock.lock();
        seek(sighting);
      }
    }
    flush();
  }
}

void Session::Impl::heartbeat() {
  nlohmann::json about = {{"leaves", leaves}, {"answer", watch.asks(now())}};
  about.update(work.heartbeat(now()));
  if (about.contains("idle")) about["misses"] = member.missing();
  member.heartbeat(about);
}

void Session::Impl::receive(const Message& message) {
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
      // With the answers to a fence: the step that was interrupted is made again.
      if (message.kind == "start" && !message.body.at("completed").empty())
        sabotage.interrupted(message.body.at("record").at("first_step").get<int64_t>());
      member.receive(message);
    }
  } catch (const nlohmann::json::exception& malformed) {
    member.report(
        {.kind = "suspect",
         .body = {{"peer", message.sender}, {"reason", std::string("sent a malformed message: ") + malformed.what()}}});
  }
}

void Session::Impl::seek(const std::optional<SessionOptions::Sighting>& sighting) {
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

void Session::Impl::follow(int64_t tenure, PeerId coordinator, const std::string& endpoint) {
  if (coordinator != member.coordinator()) transport->disconnect(member.coordinator());
  transport->connect(coordinator, endpoint);
  coordinator_endpoint = endpoint;
  watch.follow(tenure, now());
  copier.follow(coordinator);
  member.introduce(coordinator, options.about);
}

void Session::Impl::send(PeerId peer, Message message) {
  const Lock lock(mutex);
  message.run = options.run;
  message.sender = options.member.self;
  message.generation = member.generation();
  if (message.kind == "saved") saved.push_back(message);
  if (saved.size() > kMostSaved) saved.pop_front();
  transport->send(peer != 0 ? peer : member.coordinator(), std::move(message));
}

}  // namespace elinvar
