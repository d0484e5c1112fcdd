// The coordinator's messages to workers, and the times of its ticks.
#include "elastic/protocol/coordinator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// A job with workers 1, 2, ... at step 0 of a thousand, and the messages to it.
struct Job : CoordinatorWorld {
  explicit Job(int workers, const ScalingOptions& scaling = {})
      : coordinator(
            {.endpoint = "e", .steps = 1000, .initial_workers = workers, .plan = {.vranks = 8}, .scaling = scaling},
            *this, 0, {}, 0) {
    for (int i = 1; i <= workers; ++i) hello(static_cast<PeerId>(i), 0);
    for (int i = 1; i <= workers; ++i) tell(static_cast<PeerId>(i), messages::Ready{0}, 0);
    (void)coordinator.take_actions();
  }
  bool create(const Generation& generation) override {
    created.push_back(generation);
    return true;
  }
  bool superseded() override { return false; }
  std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override {
    for (const StepFacts& of : steps) on_file = std::max(on_file, of.step);
    return on_file;
  }
  int64_t restart() override { return 0; }
  void event(const std::string& name, const Json& fields) override { events.emplace_back(name, fields); }
  void evict(PeerId) override {}
  std::string refuse(const messages::Hello&) override { return ""; }

  void hello(PeerId peer, Seconds now) {
    coordinator.receive({.sender = peer, .payload = messages::Hello{.about = {.endpoint = "e"}}}, now);
  }
  // Sends the coordinator a message as a worker of the first generation does.
  void tell(PeerId peer, Payload payload, Seconds now, int64_t step = 0) {
    coordinator.receive({.sender = peer, .generation = 1, .step = step, .payload = std::move(payload)}, now);
  }
  void tell_facts(PeerId peer, int64_t step, Seconds now) { coordinator.receive(facts_message(peer, step), now); }
  static Message facts_message(PeerId peer, int64_t step) {
    const FactsBatch told{.steps = {encode_facts({.step = step})}};
    return {.sender = peer, .generation = 1, .step = step + 1, .payload = messages::Facts{told}};
  }
  // Returns the kinds of messages to a peer since the last call.
  std::vector<std::string> sent(PeerId peer) {
    std::vector<std::string> kinds;
    for (const Action& action : coordinator.take_actions())
      if (action.what == Action::What::send && action.peer == peer) kinds.push_back(action.message.payload.kind().name);
    return kinds;
  }
  bool has(const std::string& event) const {
    return std::any_of(events.begin(), events.end(), [&](const auto& e) { return e.first == event; });
  }

  std::vector<Generation> created;
  std::vector<std::pair<std::string, Json>> events;
  int64_t on_file = -1;
  Coordinator coordinator;
};

using Kinds = std::vector<std::string>;

TEST(Coordinator, LetsALearnerThatIsToLeaveGoAtOnce) {
  for (const bool ready : {false, true}) {
    Job job(1);
    job.hello(7, 1);
    EXPECT_EQ(job.sent(7), Kinds{"welcome"});
    job.tell(7, messages::Warm{}, 1);
    // Ready while a proposal is in transit, so the learner waits for the next proposal.
    job.coordinator.ask_checkpoint(1);
    if (ready) job.tell(7, messages::Ready{(1 << 20) + 1}, 1, 2);
    (void)job.coordinator.take_actions();
    job.tell(7, messages::Drain{}, 1);
    EXPECT_EQ(job.sent(7), Kinds{"release"});
    EXPECT_EQ(job.events.back().first, "left");
    EXPECT_EQ(job.events.back().second.at("peer"), 7);
    EXPECT_FALSE(job.coordinator.job().workers.contains(7));
    EXPECT_EQ(job.coordinator.job().phase, Coordinator::Phase::running);
    job.hello(7, 2);
    EXPECT_EQ(job.sent(7), Kinds{"refused"});
  }
}

// The job counts on from the numbers that workers report.
TEST(Coordinator, RefusesNumbersThatAreImpossibleInTheJob) {
  Job job(1);
  const int64_t number = job.coordinator.job().number;
  const auto refused = [&](const Message& message) -> std::string {
    try {
      job.coordinator.receive(message, 1);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  messages::Hello hello{.about = {.endpoint = "e"}};
  EXPECT_EQ(refused({.sender = 7, .generation = 3'000'000, .payload = hello}),
            "expected a generation up to 1000001, got 3000000");
  EXPECT_EQ(refused({.sender = 7, .step = 1002, .payload = hello}), "expected a step up to 1001, got 1002");
  hello.promised = 3'000'000;
  EXPECT_EQ(refused({.sender = 7, .payload = hello}), "expected a promised generation up to 1000001, got 3000000");
  hello.promised = 0;
  hello.id = 1 << 30;
  EXPECT_EQ(refused({.sender = 7, .payload = hello}), "expected a worker's id up to 1000002, got 1073741824");
  EXPECT_EQ(refused({.sender = 1, .generation = 1, .payload = messages::Fenced{.promised = 3'000'000}}),
            "expected a promised generation up to 1000001, got 3000000");
  EXPECT_EQ(job.coordinator.job().number, number);
  EXPECT_FALSE(job.coordinator.job().workers.contains(7));
  hello = {.about = {.endpoint = "e"}, .promised = 5};
  EXPECT_EQ(refused({.sender = 7, .payload = hello}), "");
  EXPECT_EQ(job.coordinator.job().number, 5);
}

// The result of the previous step reaches a newcomer last, so it begins its first step late.
TEST(Coordinator, GivesANewcomerLessOfItsFirstStep) {
  Job job(1);
  job.hello(7, 1);
  job.tell(7, messages::Warm{}, 1);
  job.tell(7, messages::Ready{(1 << 20) + 1}, 1, 2);
  ASSERT_EQ(job.created.size(), 2u);
  const Generation& with = job.created.back();
  ASSERT_EQ(with.members.size(), 2u);
  EXPECT_EQ(total(with.members[0].share), total(with.members[1].share));
  EXPECT_GT(total(with.members[0].first_share), total(with.members[0].share));
  EXPECT_EQ(total(with.members[0].first_share) + total(with.members[1].first_share), 2 * total(with.members[0].share));
}

// A newcomer delays others only until it is warm. If the job cannot continue without it, it gets the state at once.
TEST(Coordinator, TransfersTheStateToANewcomerThatIsWarm) {
  Job job(1);
  job.hello(7, 1);
  job.coordinator.tick(1.5);
  EXPECT_EQ(job.sent(1), Kinds{});
  job.tell(7, messages::Warm{}, 2);
  EXPECT_EQ(job.sent(1), (Kinds{"stop_sending", "send_state"}));
}

TEST(Coordinator, KeepsAMemberThatIsToLeaveUntilTheOthersNeedItNoMore) {
  Job job(2);
  job.tell(2, messages::Drain{}, 1);
  ASSERT_EQ(job.created.size(), 2u);
  EXPECT_EQ(job.sent(2), Kinds{"propose"});
  // Both complete step 0 in generation 1 and continue in generation 2. The facts of step 0 may come later.
  job.coordinator.receive({.sender = 2, .generation = 2, .step = 1, .payload = messages::Entered{}}, 1.1);
  EXPECT_EQ(job.sent(2), Kinds{});
  job.coordinator.receive({.sender = 1, .generation = 2, .step = 1, .payload = messages::Entered{}}, 1.1);
  EXPECT_EQ(job.sent(2), Kinds{"release"});
  EXPECT_TRUE(job.has("left"));
}

// With adaptive scaling a worker that enters a generation tells whether that was the last step; the facts, which tell
// it too, may come later.
TEST(Coordinator, KeepsAMemberThatLeavesAfterTheLastStepToTheEnd) {
  for (const bool last : {false, true}) {
    Job job(2, {.batch = 8, .batch_max = 8});
    job.tell(2, messages::Drain{}, 1);
    EXPECT_EQ(job.sent(2), Kinds{"propose"});
    const messages::Entered entered{.end = last ? std::optional<int64_t>(3) : std::nullopt};
    for (const PeerId peer : {PeerId{1}, PeerId{2}})
      job.coordinator.receive({.sender = peer, .generation = 2, .step = 4, .payload = entered}, 1.1);
    EXPECT_EQ(job.sent(2), last ? Kinds{} : Kinds{"release"});
  }
}

TEST(Coordinator, AnswersHeartbeatsThatAskForIt) {
  Job job(1);
  job.tell(1, messages::Alive{.answer = false}, 1);
  EXPECT_EQ(job.sent(1), Kinds{});
  job.tell(1, messages::Alive{.answer = true}, 2);
  EXPECT_EQ(job.sent(1), Kinds{"heard"});
}

TEST(Coordinator, TellsHowFarAnEvaluationHasCome) {
  Job job(1);
  job.tell(1, messages::Alive{.work = {.what = "a batch of an evaluation", .part = 3, .parts = 7}}, 1);
  const nlohmann::json at = {{"what", "a batch of an evaluation"}, {"part", 3}, {"parts", 7}};
  EXPECT_EQ(job.coordinator.status(1).at("workers").at(0).at("at"), at);
  job.tell(1, messages::Alive{.work = {.what = "a rank gradient"}}, 2);
  EXPECT_FALSE(job.coordinator.status(2).at("workers").at(0).contains("at"));
}

// No worker waits for the confirmation. Unconfirmed facts are kept, and reported again after a death.
TEST(Coordinator, ConfirmsSeveralFactsAtOnce) {
  Job job(1);
  int acks = 0;
  for (int64_t step = 0; step < 33; ++step) {
    job.tell_facts(1, step, 2 + 0.01 * static_cast<double>(step));
    for (const std::string& kind : job.sent(1)) acks += kind == "ack";
  }
  EXPECT_EQ(acks, 2);
  job.tell_facts(1, 33, 5);
  EXPECT_EQ(job.sent(1), Kinds{"ack"});
}

// Facts that the predecessor did not confirm are reported again, and are confirmed even if they are on file. Facts that
// were not reported yet are not confirmed, although a resumed run has them on file: a leader that gathers them would
// then never report them.
TEST(Coordinator, ConfirmsWhatComesAgainAfterATakeover) {
  Job before(1);
  before.on_file = 7;
  Coordinator next({.term = 2, .endpoint = "e", .steps = 10}, before, 7,
                   {.newest = before.created.back(), .before = {}, .members_alive = true}, 100);
  const messages::Hello hello{
      .about = {.endpoint = "e"}, .active = true, .loaded = true, .ready = true, .promised = 1, .id = 1};
  next.receive({.sender = 1, .generation = 1, .step = 8, .payload = hello}, 100.1);
  EXPECT_EQ(next.job().phase, Coordinator::Phase::fencing);
  (void)next.take_actions();
  next.receive(Job::facts_message(1, 5), 100.2);
  const std::vector<Action> actions = next.take_actions();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_TRUE(actions[0].message.as<messages::Ack>());
  EXPECT_EQ(actions[0].message.step, 5);
  next.receive(Job::facts_message(1, 6), 102.2);
  EXPECT_EQ(next.take_actions().at(0).message.step, 6);
}

// In a job that runs, only silence depends on time.
TEST(Coordinator, IsDueWhenAWorkerWouldBeSilent) {
  Job job(2);
  job.coordinator.tick(0.5);
  EXPECT_EQ(job.coordinator.tick_by(), 1.5);
  job.tell(2, messages::Alive{}, 0.6);
  for (const Seconds now : {1.5, 2.4}) job.coordinator.tick(now);
  job.tell(1, messages::Alive{}, 2.9);
  job.coordinator.tick(2.9);
  EXPECT_EQ(job.coordinator.tick_by(), 0.6 + 3);
  job.coordinator.tick(3.601);
  EXPECT_TRUE(job.has("lost"));
  EXPECT_EQ(job.coordinator.job().phase, Coordinator::Phase::fencing);
  EXPECT_LT(job.coordinator.tick_by(), 3.7);
}

// Workers that were not heard while the coordinator itself was stopped may have sent messages.
TEST(Coordinator, DoesNotCountTheTimeForWhichItWasStopped) {
  Job job(2);
  job.coordinator.tick(0.5);
  for (const PeerId peer : {PeerId{1}, PeerId{2}}) job.tell(peer, messages::Alive{}, 1);
  job.coordinator.tick(1);
  job.tell(1, messages::Alive{}, 9);
  job.coordinator.tick(9);
  EXPECT_FALSE(job.has("lost"));
  for (Seconds now = 9.1; now < 13; now += 0.1) {
    job.tell(1, messages::Alive{}, now);
    job.coordinator.tick(now);
  }
  EXPECT_TRUE(job.has("lost"));
}

// The time that the coordinator spends on messages does not count either: the third worker's message waits until those
// of the others are handled.
TEST(Coordinator, DoesNotCountTheTimeThatMessagesTake) {
  Job job(3);
  job.coordinator.tick(1);
  for (const auto& [peer, from, to] : {std::tuple{PeerId{1}, 1.0, 2.2}, std::tuple{PeerId{2}, 2.2, 3.2}}) {
    job.coordinator.wait_ended(from);
    job.tell_facts(peer, 0, from);
    job.coordinator.tick(to);
  }
  EXPECT_FALSE(job.has("lost"));
  job.tell(3, messages::Alive{}, 3.2);
  // Afterwards silence counts as before.
  for (Seconds now = 3.2; now < 7; now += 0.2) {
    job.coordinator.wait_ended(now);
    for (const PeerId peer : {PeerId{1}, PeerId{2}}) job.tell(peer, messages::Alive{}, now);
    job.coordinator.tick(now);
  }
  EXPECT_TRUE(job.has("lost"));
}

// One worker is dead, and the other's heartbeat comes half a second late. That is no reason to hold, nor to evict the
// living worker.
TEST(Coordinator, WaitsForALateWordBeforeItHoldsTheJob) {
  for (const bool late : {true, false}) {
    Job job(2);
    for (const Seconds now : {0.9, 1.4}) {
      job.tell(2, messages::Alive{}, now);
      job.coordinator.tick(now);
    }
    for (Seconds now = 1.5; now < 3.05; now += 0.1) job.coordinator.tick(now);
    EXPECT_FALSE(job.has("hold"));
    EXPECT_FALSE(job.has("lost"));
    if (late) job.tell(2, messages::Alive{}, 3.1);
    for (Seconds now = 3.1; now < 4.5; now += 0.1) job.coordinator.tick(now);
    EXPECT_EQ(job.has("lost"), late);
    EXPECT_EQ(job.has("hold"), !late);
  }
}

}  // namespace
}  // namespace elinvar
