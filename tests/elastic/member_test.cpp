#include "comm/packet.h"
#include "elastic/protocol/member.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "elastic/step/assignment.h"
#include "tensor/base/check.h"
#include "tests/elastic/session_stage.h"

namespace elinvar {
namespace {

// A heartbeat in transit that crosses the coordinator's answer is answered like a stranger's.
TEST(Member, TheFirstWordOnItsEndStands) {
  constexpr PeerId kCoordinator = 2;
  const Message expelled{.sender = kCoordinator,
                         .payload = messages::Release{.what = "expelled", .reason = "a stranger"}};
  const Message first[] = {{.sender = kCoordinator, .payload = messages::Refused{.reason = "its data are others"}},
                           {.sender = kCoordinator, .payload = messages::Release{.what = "left", .reason = ""}}};
  const char* const expected[] = {"refused", "left"};
  for (int i = 0; i < 2; ++i) {
    Member member(MemberOptions{.self = 4, .steps = 10});
    member.introduce(kCoordinator, {});
    member.receive(first[i]);
    member.receive(expelled);
    ASSERT_TRUE(member.outcome().has_value());
    EXPECT_EQ(member.outcome()->what, expected[i]);
  }
}

TEST(Member, IsToldWhetherItMayComeBack) {
  const auto again = [](Payload payload) {
    Member member(MemberOptions{.self = 4, .steps = 10});
    member.introduce(2, {});
    member.receive({.sender = 2, .payload = std::move(payload)});
    return member.outcome()->again;
  };
  using messages::Refused, messages::Release;
  EXPECT_TRUE(again(Release{.what = "expelled", .reason = "silent", .again = true}));
  EXPECT_FALSE(again(Release{.what = "expelled", .reason = "the audit", .again = false}));
  EXPECT_FALSE(again(Release{.what = "left", .reason = ""}));
  EXPECT_TRUE(again(Refused{.reason = "it was evicted before", .again = true}));
  EXPECT_FALSE(again(Refused{.reason = "its data are others"}));
}

// No record names a learner: after a takeover only the members that send it the state can report it.
TEST(Member, ReportsItsStateTransfersToANewCoordinator) {
  Member member(MemberOptions{.self = 4, .steps = 10});
  member.introduce(2, {});
  member.receive({.sender = 2, .payload = messages::Welcome{.restore = 0}});
  const StateLoad load = member.catching_up().load();
  member.loaded(load);
  (void)member.outbox().take();
  const messages::SendState request{
      .peer = 7, .endpoint = "tcp://127.0.0.1:7", .part = 0, .parts = 1, .attempt = 1, .copies = true};
  member.receive({.sender = 2, .step = 3, .payload = request});
  member.introduce(3, {});
  const std::vector<Action> actions = member.outbox().take();
  ASSERT_FALSE(actions.empty());
  const auto* hello = actions.back().message.as<messages::Hello>();
  ASSERT_TRUE(hello);
  ASSERT_EQ(hello->learners.size(), 1u);
  EXPECT_EQ(hello->learners[0].peer, 7u);
  EXPECT_EQ(hello->learners[0].endpoint, "tcp://127.0.0.1:7");
}

// The first computation takes long, so a newcomer does it before others wait for it.
TEST(Member, ComputesARankGradientBeforeItReceivesTheState) {
  Member member(MemberOptions{.self = 4, .vranks = 4, .steps = 10});
  member.introduce(2, {});
  EXPECT_FALSE(member.outbox().take().back().message.as<messages::Hello>()->warm);
  EXPECT_EQ(member.next(), Member::Next::wait);
  member.receive({.sender = 2, .payload = messages::Welcome{}});
  EXPECT_EQ(member.next(), Member::Next::layout);
  member.learn_layout({.gradients = {Tensor::full({3}, 1)}, .facts = {.count = 1, .samples = 1}});
  EXPECT_TRUE(member.outbox().take().back().message.as<messages::Warm>());
  EXPECT_EQ(member.next(), Member::Next::wait);
  member.introduce(3, {});  // this coordinator does not know the member
  EXPECT_TRUE(member.outbox().take().back().message.as<messages::Hello>()->warm);
}

// Two members of the first generation, each with two of four virtual ranks, and a network that delivers everything at
// once.
struct HostMembers {
  static constexpr PeerId kCoordinator = 9;
  // Assigns the virtual ranks as evenly as possible.
  static Generation generation(int64_t number, const std::vector<PeerId>& peers) {
    Generation g{.number = number, .first_step = number == 1 ? 0 : -1, .members = {}, .next_id = 4, .reason = ""};
    const auto shares = assign(4, std::vector<double>(peers.size(), 1));
    for (size_t i = 0; i < peers.size(); ++i)
      g.members.push_back({.id = static_cast<int>(peers[i]),
                           .peer = peers[i],
                           .endpoint = "e",
                           .share = shares[i],
                           .first_share = shares[i]});
    return g;
  }
  static std::unique_ptr<Member> introduced(PeerId self) {
    auto m = std::make_unique<Member>(MemberOptions{.self = self, .vranks = 4, .steps = 200, .bucket_elements = 3});
    m->introduce(kCoordinator, {});
    return m;
  }
  HostMembers() {
    for (const PeerId peer : {PeerId{1}, PeerId{2}}) {
      Member& m = *members.emplace(peer, introduced(peer)).first->second;
      m.receive({.sender = kCoordinator, .payload = messages::Welcome{.restore = 0}});
      m.loaded(m.catching_up().load());
      m.learn_layout(leaf(0));
    }
    for (auto& [peer, m] : members)
      m->receive(
          {.sender = kCoordinator, .generation = 1, .payload = messages::Start{.record = generation(1, {1, 2})}});
    deliver();
  }

  void propose(const Generation& next) {
    for (auto& [peer, m] : members)
      m->receive({.sender = kCoordinator, .generation = next.number, .payload = messages::Propose{next}});
  }

  static RankGradient leaf(int vrank) {
    const auto tensor = [&](int64_t n, double x) { return Tensor::full({n}, x + vrank); };
    return {.gradients = {tensor(3, 0.5), tensor(2, 0.25)},
            .batch_statistics = {tensor(1, 0.125)},
            .facts = {.count = 1, .samples = 1}};
  }

  // Delivers all messages. Returns the kinds of those sent.
  std::vector<std::string> deliver() {
    std::vector<std::string> kinds;
    for (auto& [peer, m] : members)
      for (Action& action : m->outbox().take()) {
        if (action.what != Action::What::send) continue;
        const auto* facts = action.message.as<messages::Facts>();
        const auto* alive = action.message.as<messages::Alive>();
        for (const EncodedFacts& of : (facts ? facts->told : alive ? alive->told : FactsBatch{}).steps)
          told.push_back(of.step);
        action.message.sender = peer;
        if (action.peer == 3 && !members.contains(3)) on_their_way.push_back(action.message);
        if (!members.contains(action.peer)) continue;
        kinds.push_back(action.message.payload.kind().name);
        members.at(action.peer)->receive(action.message);
      }
    return kinds;
  }

  // Both members make the next step, with these facts.
  void step(const StepFacts& facts = {}) {
    const int64_t step = members.at(1)->position().step;
    for (auto& [peer, m] : members) {
      for (const int v : m->gradients().todo()) m->gradients().add(step, v, leaf(v), 1);
      m->gradients().contribute({});
    }
    std::set<PeerId> complete;
    while (complete.size() < members.size()) {
      deliver();
      for (auto& [peer, m] : members)
        if (!complete.contains(peer) && m->reduce() == Member::Progress::complete) complete.insert(peer);
    }
    for (auto& [peer, m] : members) {
      const Reduced reduced = m->reduction().take_reduced();
      if (m->position().index == 0) made_by.push_back(reduced.generation);
      m->advance(facts);
    }
    deliver();
  }

  std::map<PeerId, std::unique_ptr<Member>> members;
  std::vector<int64_t> told;          // the steps whose facts the coordinator has
  std::vector<int64_t> made_by;       // the generation of each step
  std::vector<Message> on_their_way;  // to the third worker, which is a learner
};

using Kinds = std::vector<std::string>;
using Steps = std::vector<int64_t>;

// The members enter a generation, and the next is proposed, before a newcomer knows that it is a member. It must hold
// the next one too, or that one never begins.
TEST(Member, ANewcomerHoldsAGenerationWithoutItWhereOneWithItMayHaveBegun) {
  HostMembers pair;
  std::unique_ptr<Member> third = HostMembers::introduced(3);
  third->receive({.sender = HostMembers::kCoordinator, .payload = messages::Welcome{}});
  pair.members.at(1)->receive(
      {.sender = HostMembers::kCoordinator,
       .payload = messages::SendState{.peer = 3, .endpoint = "e", .attempt = 1, .copies = true}});
  third->receive({.sender = 1, .payload = messages::StatePieces{.attempt = 1, .last = true}});
  ASSERT_EQ(third->next(), Member::Next::load);
  third->loaded(third->catching_up().load());
  ASSERT_EQ(third->next(), Member::Next::layout);
  third->learn_layout(HostMembers::leaf(0));
  ASSERT_EQ(third->next(), Member::Next::copy);

  const auto propose = [&](int64_t number, const std::vector<PeerId>& peers) {
    const Message m{.sender = HostMembers::kCoordinator,
                    .generation = number,
                    .payload = messages::Propose{HostMembers::generation(number, peers)}};
    for (auto& [peer, member] : pair.members) member->receive(m);
    if (third) third->receive(m);
  };
  propose(2, {1, 2, 3});
  pair.step();
  EXPECT_EQ(pair.members.at(1)->position().number(), 2);
  EXPECT_FALSE(third->position().active());
  propose(3, {1, 2});
  for (const Message& m : pair.on_their_way) third->receive(m);
  while (third->reduce() != Member::Progress::complete)
    ASSERT_TRUE(third->reduction().missing().empty()) << third->reduction().missing();
  EXPECT_EQ(third->position().number(), 2);
  (void)third->reduction().take_reduced();
  third->advance({});
  pair.members.emplace(3, std::move(third));
  pair.step();
  EXPECT_EQ(pair.members.at(1)->position().number(), 3);
}

// Each message wakes several threads: several steps share one message, unless their facts are waited for.
TEST(Member, TheLeaderTellsOfSeveralStepsAtOnce) {
  HostMembers pair;
  Member& leader = *pair.members.at(1);
  for (int i = 0; i < 3; ++i) pair.step();
  EXPECT_EQ(pair.told, Steps{});
  for (auto& [peer, m] : pair.members) m->heartbeat({});
  pair.deliver();
  EXPECT_EQ(pair.told, (Steps{0, 1, 2}));
  leader.heartbeat({});
  pair.deliver();
  EXPECT_EQ(pair.told, (Steps{0, 1, 2})) << "each once";
  pair.told.clear();
  pair.step();
  pair.step({.state = Digest{1, 2}});  // a checkpoint may wait for this digest
  EXPECT_EQ(pair.told, (Steps{3, 4}));
}

TEST(Member, NobodyGathersMoreFactsThanItMay) {
  HostMembers pair;
  const int report_every = MemberOptions().report_every;
  for (int i = 0; i + 1 < report_every; ++i) pair.step();
  EXPECT_EQ(pair.told, Steps{});
  pair.step();
  Steps all(static_cast<size_t>(report_every));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(pair.told, all);
  pair.told.clear();
  // After a death, and to another coordinator, all unconfirmed facts are reported again.
  pair.step();
  pair.members.at(1)->receive(
      {.sender = HostMembers::kCoordinator, .step = report_every - 3, .payload = messages::Ack{}});
  pair.members.at(1)->introduce(HostMembers::kCoordinator, {});
  pair.deliver();
  EXPECT_EQ(pair.told, (Steps{report_every - 2, report_every - 1, report_every}));
}

// This happens with a coordinator that was away for long.
TEST(Member, ManyFactsAreSeveralMessages) {
  HostMembers pair;
  for (int i = 0; i < 150; ++i) pair.step({.digests = std::string(20000, 'x')});
  pair.members.at(1)->introduce(HostMembers::kCoordinator, {});
  std::vector<size_t> steps;
  for (Action& action : pair.members.at(1)->outbox().take())
    if (const auto* facts = action.message.as<messages::Facts>()) {
      steps.push_back(facts->told.steps.size());
      EXPECT_NO_THROW(encode(packet_of(action.message, 1)));
    }
  EXPECT_EQ(steps, (std::vector<size_t>{64, 64, 22}));
}

TEST(Member, FactsThatMakeNoSenseAreRefused) {
  FactsBatch told{.at = 2.0};
  told.steps.push_back(encode_facts({.step = 3, .at = 1.5}));
  told.steps.push_back(encode_facts({.step = 4, .at = 2.0, .digests = "a line of digests.jsonl"}));
  const std::vector<StepFacts> steps = decode_facts(told);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, 3);
  EXPECT_EQ(steps[0].age, 0.5);
  EXPECT_EQ(steps[1].step, 4);
  EXPECT_EQ(steps[1].age, 0);
  EXPECT_EQ(steps[0].digests, "");
  EXPECT_EQ(steps[1].digests, "a line of digests.jsonl");
  const auto malformed = [&](const std::string& text) {
    EXPECT_THROW(decode_facts({.steps = {{0, blob_of(text)}}}), UsageError) << text;
  };
  for (const std::string text : {"", "{", "[]", "7", "\n", "{\n}", "{}", R"({"at":1.5})"}) malformed(text);
  malformed("{\"a\":" + std::string(40, '[') + std::string(40, ']') + "}");
  Packet packet = packet_of({.payload = messages::Facts{told}}, 1);
  packet.blobs.pop_back();
  EXPECT_THROW(message_of(packet), UsageError) << "a step's text is missing";
}

TEST(Member, WhatACheckpointThatWasAskedForMayWaitForIsToldAtOnce) {
  HostMembers pair;
  pair.step();
  Generation saves = HostMembers::generation(2, {1, 2});
  saves.checkpoint = true;
  pair.propose(saves);
  pair.step();
  EXPECT_EQ(pair.told, (Steps{0, 1})) << "as it enters the generation, and as it saves";
  pair.step();
  EXPECT_EQ(pair.told, (Steps{0, 1}));
}

TEST(Member, AStepIsOfTheGenerationThatMadeIt) {
  HostMembers pair;
  pair.step();
  pair.propose(HostMembers::generation(2, {1, 2}));
  for (int i = 0; i < 2; ++i) pair.step();
  EXPECT_EQ(pair.members.at(1)->position().number(), 2);
  EXPECT_EQ(pair.made_by, (Steps{1, 1, 2}));
}

// The facts cannot be reported later, because the run ends.
TEST(Member, WhoFailsTellsOfTheStepsBefore) {
  for (const PeerId peer : {PeerId{1}, PeerId{2}}) {
    HostMembers pair;
    for (int i = 0; i < 3; ++i) pair.step();
    pair.members.at(peer)->failed("no more memory", 3);
    std::vector<std::string> kinds;
    for (const Action& action : pair.members.at(peer)->outbox().take())
      kinds.push_back(action.message.payload.kind().name);
    EXPECT_EQ(kinds, (Kinds{"facts", "failed"}));
  }
}

TEST(Member, ABucketLeavesBeforeTheLastLeafIsWhole) {
  HostMembers pair;
  Member &a = *pair.members.at(1), &b = *pair.members.at(2);
  const RankGradient leaves[] = {HostMembers::leaf(0), HostMembers::leaf(1), HostMembers::leaf(2),
                                 HostMembers::leaf(3)};
  EXPECT_FALSE(a.gradients().opens(0)) << "another leaf is to come";
  a.gradients().add(0, 0, leaves[0], 1);
  b.gradients().add(0, 2, leaves[2], 1);
  for (const int v : {1, 3}) {
    Member& m = v == 1 ? a : b;
    ASSERT_TRUE(m.gradients().opens(v));
    m.gradients().open(0, v, 1, leaves[v].batch_statistics);
    EXPECT_TRUE(pair.deliver().empty());
    m.gradients().put(1, leaves[v].gradients[1]);
    EXPECT_EQ(pair.deliver(), v == 1 ? Kinds{"contribution"} : Kinds{}) << "bucket 1 is b's";
  }
  EXPECT_FALSE(a.reduction().work());
  EXPECT_TRUE(b.reduction().work());
  EXPECT_EQ(pair.deliver(), Kinds{"result"});
  for (const int v : {1, 3}) {
    Member& m = v == 1 ? a : b;
    m.gradients().put(0, leaves[v].gradients[0]);
    m.gradients().add(0, v, leaves[v], 1);
    m.gradients().contribute({});
  }
  EXPECT_EQ(pair.deliver(), (Kinds{"contribution", "part"}));
  EXPECT_EQ(a.reduce(), Member::Progress::complete);
  EXPECT_EQ(pair.deliver(), (Kinds{"trailer", "result"}));
  EXPECT_EQ(b.reduce(), Member::Progress::complete);
  const Reduced reduced = b.reduction().take_reduced();
  for (const float x : reduced.gradients[0].span<float>()) EXPECT_EQ(x, (4 * 0.5f + 6) / 4);
  for (const float x : reduced.gradients[1].span<float>()) EXPECT_EQ(x, (4 * 0.25f + 6) / 4);
  EXPECT_EQ(reduced.batch_statistics[0].item(), 4 * 0.125 + 6);
}

// With tensor parallelism it says so, and the coordinator deals all of the step's virtual ranks anew.
TEST(Member, AMemberOfAReplicaKeepsNoShareAtAFence) {
  for (const bool divided : {false, true}) {
    Member member(MemberOptions{.self = 4,
                                .vranks = 4,
                                .steps = 10,
                                .parts = divided ? std::optional(test::parts_of_shards({0, 1})) : std::nullopt});
    member.introduce(2, {});
    member.receive({.sender = 2, .payload = messages::Welcome{.restore = 0}});
    member.loaded(member.catching_up().load());
    Generation first{.number = 1, .first_step = 0, .members = {}, .next_id = 2, .reason = ""};
    first.members = {{.id = 1, .peer = 4, .endpoint = "e", .share = {{0, 4}}, .first_share = {{0, 4}}}};
    first.shards = divided ? 2 : 0;
    first.members[0].place = {0, {0, divided ? 2 : 1}};
    member.receive({.sender = 2, .generation = 1, .payload = messages::Start{.record = first}});
    const RankGradient leaf{.gradients = {Tensor::full({3}, 1), Tensor::full({2}, 1)},
                            .facts = {.count = 1, .samples = 1}};
    member.gradients().add(0, 0, leaf, 1);
    EXPECT_EQ(member.gradients().todo(), (std::vector<int>{1, 2, 3}));
    member.receive({.sender = 2, .generation = 2, .payload = messages::Fence{}});
    const std::vector<Action> actions = member.outbox().take();
    const auto* answer = actions.back().message.as<messages::Fenced>();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->share, divided ? std::vector<Interval>() : (std::vector<Interval>{{0, 4}}));
    first.number = 2;
    member.receive({.sender = 2, .generation = 2, .payload = messages::Start{.record = first}});
    EXPECT_EQ(member.gradients().todo(), divided ? (std::vector<int>{0, 1, 2, 3}) : (std::vector<int>{1, 2, 3}));
  }
}

// The rank gradient is completed and reduced, and all of it is sent again in the next generation.
TEST(Member, AFenceLeavesAnOpenLeafWhole) {
  HostMembers pair;
  Member& b = *pair.members.at(2);
  const RankGradient leaf = HostMembers::leaf(3);
  b.gradients().add(0, 2, HostMembers::leaf(2), 1);
  b.gradients().open(0, 3, 1, leaf.batch_statistics);
  b.receive({.sender = HostMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
  b.gradients().put(1, leaf.gradients[1]);
  EXPECT_TRUE(pair.deliver().empty());
  Generation alone{.number = 2, .first_step = 0, .members = {}, .next_id = 3, .reason = ""};
  alone.members = {{.id = 2, .peer = 2, .endpoint = "e", .share = {{0, 4}}, .first_share = {{0, 4}}}};
  b.receive({.sender = HostMembers::kCoordinator, .generation = 2, .payload = messages::Start{.record = alone}});
  b.gradients().put(0, leaf.gradients[0]);
  b.gradients().add(0, 3, leaf, 1);
  EXPECT_EQ(b.gradients().todo(), (std::vector<int>{0, 1}));
  for (const int v : {0, 1}) b.gradients().add(0, v, HostMembers::leaf(v), 1);
  b.gradients().contribute({});
  EXPECT_EQ(b.reduce(), Member::Progress::complete);
  const Reduced reduced = b.reduction().take_reduced();
  for (const float x : reduced.gradients[0].span<float>()) EXPECT_EQ(x, (4 * 0.5f + 6) / 4);
}

}  // namespace
}  // namespace elinvar
