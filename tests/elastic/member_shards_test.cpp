// Members whose optimizer state is sharded (ZeRO): what a fence and a lost state do to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "elastic/protocol/member.h"
#include "elastic/step/assignment.h"

namespace elinvar {
namespace {

constexpr int kShardedVranks = 4, kShardedBuckets = 5;

// Members 1, 2, .. of generation 1, which have restored the initial state, and a network that delivers at once.
struct ShardedMembers {
  static constexpr PeerId kCoordinator = 9;

  static Generation generation(int64_t number, int64_t first_step, const std::vector<PeerId>& peers) {
    Generation g{.number = number, .first_step = first_step, .members = {}, .next_id = 4, .reason = ""};
    const auto shares = assign(kShardedVranks, std::vector<double>(peers.size(), 1));
    for (size_t i = 0; i < peers.size(); ++i)
      g.members.push_back({.id = static_cast<int>(peers[i]),
                           .peer = peers[i],
                           .endpoint = "e",
                           .share = shares[i],
                           .first_share = shares[i]});
    g.sharding = Sharding{.keepers = {.ids = g.ids(), .copies = 1}, .holders = {.ids = g.ids()}, .whole = true};
    return g;
  }
  static RankGradient gradient(int vrank) {
    const auto x = static_cast<float>(vrank);
    return {.gradients = {Tensor::full({3}, x), Tensor::full({2}, 2 * x)}, .facts = {.count = 1, .samples = 1}};
  }

  explicit ShardedMembers(const std::vector<PeerId>& peers, const AuditOptions& audit = {}) {
    for (const PeerId peer : peers) {
      const MemberOptions options{.self = peer,
                                  .endpoint = "at",
                                  .vranks = kShardedVranks,
                                  .steps = 10,
                                  .bucket_elements = 1,
                                  .sharding = ShardOptions{.multiple = 1, .parameters = {{3}, {2}}},
                                  .audit = audit};
      Member& m = *members.emplace(peer, std::make_unique<Member>(options)).first->second;
      m.introduce(kCoordinator, {});
      m.receive({.sender = kCoordinator, .payload = messages::Welcome{.restore = 0}});
      m.loaded(m.catching_up().load());
      m.learn_layout(gradient(0));
    }
    tell(1, messages::Start{.record = generation(1, 0, peers)});
    deliver();
  }

  // The coordinator tells all.
  void tell(int64_t number, const Payload& payload) {
    for (auto& [peer, m] : members) m->receive({.sender = kCoordinator, .generation = number, .payload = payload});
  }
  // Delivers all messages but those that are lost.
  void deliver() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [peer, m] : members)
        for (Action& action : m->outbox().take()) {
          if (action.what != Action::What::send) continue;
          if (const auto* answer = action.message.as<messages::Fenced>()) fenced[peer] = *answer;
          if (!members.contains(action.peer) || loses(action.message)) continue;
          action.message.sender = peer;
          members.at(action.peer)->receive(action.message);
          any = true;
        }
      for (auto& [peer, m] : members)
        for (const ValueExchange::Wanted& wanted : m->values().take_wanted())
          for (const int b : wanted.buckets) {
            m->values().give(wanted, b, {blob_of("four")});
            any = true;
          }
    }
  }
  void contribute(PeerId peer) {
    Member& m = *members.at(peer);
    for (const int v : m.gradients().todo()) m.gradients().add(m.position().step, v, gradient(v), 1);
    m.gradients().contribute({});
  }
  // Reduces what can be reduced. Returns whether the member's step is complete.
  bool reduce(PeerId peer) {
    deliver();
    const bool complete = members.at(peer)->reduce() == Member::Progress::complete;
    deliver();
    return complete;
  }
  // Makes a member's part of the update. Returns the buckets that it updates.
  std::vector<int> update(PeerId peer) {
    Member& m = *members.at(peer);
    std::vector<int> updated;
    const Reduced reduced = m.reduction().take_reduced();
    for (const GradientShards::Bucket& bucket : reduced.shards->kept) {
      updated.push_back(bucket.number);
      EXPECT_EQ(bucket.gradients.at(0).item(), bucket.slices.at(0).tensor == 0 ? 1.5 : 3) << "bucket " << bucket.number;
    }
    (void)m.shards().take_change();
    for (const int b : m.values().to_send()) m.values().send(b, {blob_of("four")});
    m.values().updated();
    deliver();
    return updated;
  }
  std::vector<int> kept(PeerId peer) { return members.at(peer)->shards().kept(); }

  std::map<PeerId, std::unique_ptr<Member>> members;
  std::map<PeerId, messages::Fenced> fenced;  // the answers to the last fence
  std::function<bool(const Message&)> loses = [](const Message&) { return false; };
};

TEST(ShardedMember, EachUpdatesItsBucketsAndGetsTheValuesOfTheOthers) {
  ShardedMembers at({1, 2});
  for (const PeerId peer : {1, 2}) at.contribute(peer);
  std::vector<int> all;
  for (int i = 0; i < 20; ++i)
    for (const PeerId peer : {1, 2}) (void)at.reduce(peer);
  for (const PeerId peer : {1, 2}) EXPECT_NE(at.members.at(peer)->values().missing(), "");
  for (const PeerId peer : {1, 2}) {
    const std::vector<int> kept = at.kept(peer);
    EXPECT_EQ(at.update(peer), kept);
    all.insert(all.end(), kept.begin(), kept.end());
  }
  EXPECT_EQ(all.size(), static_cast<size_t>(kShardedBuckets));
  for (auto& [peer, m] : at.members) {
    ASSERT_TRUE(m->values().complete());
    EXPECT_EQ(m->values().take_arrived().size() + at.kept(peer).size(), static_cast<size_t>(kShardedBuckets));
    m->advance({});
    EXPECT_EQ(m->position().step, 1);
    EXPECT_FALSE(m->values().pending());
  }
}

// The first member has the trailer, the second does not. After the fence the second gets the trailer from the first,
// and still has the sums of the buckets that it keeps, which nobody else has.
TEST(ShardedMember, ALaggardHasTheSumsThatItPromised) {
  ShardedMembers at({1, 2});
  at.loses = [](const Message& m) { return m.as<messages::Trailer>() != nullptr; };
  for (const PeerId peer : {1, 2}) at.contribute(peer);
  for (int tries = 0; at.members.at(1)->position().completed == 0 && tries < 20; ++tries)
    for (const PeerId peer : {2, 1}) (void)at.reduce(peer);
  at.update(1);
  ASSERT_EQ(at.members.at(2)->position().completed, 0);
  at.loses = [](const Message&) { return false; };
  at.tell(2, messages::Fence{});
  at.deliver();
  ASSERT_TRUE(at.fenced.at(1).shards && at.fenced.at(2).shards);
  EXPECT_FALSE(at.fenced.at(1).shards->whole);
  EXPECT_EQ(at.fenced.at(1).shards->generation, 1);
  EXPECT_TRUE(at.fenced.at(2).shards->whole) << "it does not know that its step is complete";

  Generation next = ShardedMembers::generation(2, 1, {1, 2});
  next.sharding->holders = next.sharding->keepers;
  next.sharding->whole = false;
  at.tell(2, messages::Start{.record = next, .completed = {{1, 1}}});
  Member& laggard = *at.members.at(2);
  EXPECT_EQ(laggard.next(), Member::Next::copy);
  ASSERT_TRUE(at.reduce(2));
  EXPECT_EQ(at.update(2), at.kept(2));
  for (auto& [peer, m] : at.members) EXPECT_TRUE(m->values().complete()) << peer << " lacks " << m->values().missing();
}

// The trailer makes the first member begin another generation. The second member learns of both only after the fence,
// and so has none of the virtual ranks that the generation gave it.
TEST(ShardedMember, WhoDoesNotKnowTheNewestGenerationKeepsNoRankGradients) {
  ShardedMembers at({1, 2});
  Generation next = ShardedMembers::generation(2, -1, {1, 2});
  next.sharding->holders = next.sharding->keepers;
  next.sharding->whole = false;
  at.tell(2, messages::Propose{next});
  at.loses = [](const Message& m) { return m.as<messages::Trailer>() != nullptr; };
  for (const PeerId peer : {1, 2}) at.contribute(peer);
  for (int tries = 0; at.members.at(1)->position().completed == 0 && tries < 20; ++tries)
    for (const PeerId peer : {2, 1}) (void)at.reduce(peer);
  at.update(1);
  ASSERT_EQ(at.members.at(1)->position().number(), 2);
  at.loses = [](const Message&) { return false; };
  at.tell(3, messages::Fence{});
  ASSERT_TRUE(at.reduce(2));
  EXPECT_EQ(at.members.at(2)->position().completed, 1);
  EXPECT_EQ(total(at.fenced.at(1).share), 2);
  EXPECT_TRUE(at.fenced.at(2).share.empty());
}

// The first member dies with the trailer, or nobody has it: the step is repeated, and old promises do not count.
TEST(ShardedMember, ARepeatedStepBeginsWithTheSameHolders) {
  ShardedMembers at({1, 2});
  at.loses = [](const Message& m) { return m.as<messages::Trailer>() || m.as<messages::TrailerPart>(); };
  for (const PeerId peer : {1, 2}) at.contribute(peer);
  for (int i = 0; i < 10; ++i) (void)at.reduce(2);
  at.members.erase(1);
  at.tell(2, messages::Fence{});
  at.deliver();
  EXPECT_TRUE(at.fenced.at(2).shards->whole);
  at.tell(2, messages::Start{.record = ShardedMembers::generation(2, 0, {2})});
  at.contribute(2);
  ASSERT_TRUE(at.reduce(2));
  EXPECT_EQ(at.update(2), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(at.members.at(2)->values().complete());
  EXPECT_EQ(at.members.at(2)->shards().held()->generation, 2);
}

// Some part of the state is lost: members restore a checkpoint, also one that they have restored before.
TEST(ShardedMember, ReturnsToTheStateThatItRestored) {
  ShardedMembers at({1});
  Member& m = *at.members.at(1);
  at.contribute(1);
  ASSERT_TRUE(at.reduce(1));
  at.update(1);
  m.advance({});
  EXPECT_EQ(m.position().step, 1);
  at.tell(2, messages::Fence{});
  at.tell(2, messages::Welcome{.restore = 0});
  EXPECT_FALSE(m.position().active());
  ASSERT_EQ(m.next(), Member::Next::load);
  const StateLoad load = m.catching_up().load();
  EXPECT_EQ(load.restore, 0);
  m.loaded(load);
  EXPECT_EQ(m.position().step, 0);
  EXPECT_EQ(m.position().completed, 0);
  EXPECT_TRUE(m.shards().held()->whole);
  at.tell(3, messages::Start{.record = ShardedMembers::generation(3, 0, {1})});
  EXPECT_EQ(m.next(), Member::Next::gradients);
  EXPECT_FALSE(m.outcome());
}

// The loop may still compute a rank gradient as the member is told to restore: no claim about it counts.
TEST(ShardedMember, ARankGradientUnderWayIsNotOneOfTheRestoredState) {
  const AuditOptions audit{.every = 1, .seed = 7};
  ShardedMembers at({1}, audit);
  Member& m = *at.members.at(1);
  at.tell(2, messages::Fence{});
  at.tell(2, messages::Welcome{.restore = 0});
  const int audited = audited_vrank(audit, 0, kShardedVranks);
  m.gradients().add(0, audited, ShardedMembers::gradient(audited), 1);
  m.loaded(m.catching_up().load());
  at.tell(3, messages::Start{.record = ShardedMembers::generation(3, 0, {1})});
  ASSERT_TRUE(m.audit().claims());
  EXPECT_TRUE(m.audit().claims()->leaves.empty());
}

// Returns how many messages of this kind a member is about to send.
template <class T>
std::ptrdiff_t about_to_send(Member& member) {
  const std::vector<Action> actions = member.outbox().take();
  return std::ranges::count_if(actions, [](const Action& action) { return action.message.as<T>() != nullptr; });
}

// Who asks for the values after a step has its trailer. A request that comes late, after all have restored a
// checkpoint, is of another history: with adaptive scaling, so is the trailer.
TEST(ShardedMember, LearnsOfNoCommitFromAnEarlierGeneration) {
  for (const int64_t number : {1, 3}) {
    ShardedMembers job({1, 2});
    job.tell(2, messages::Fence{});
    job.tell(3, messages::Start{.record = ShardedMembers::generation(3, 0, {1, 2})});
    job.tell(4, messages::Fence{});
    job.deliver();
    Member& m = *job.members.at(1);
    m.receive({.sender = 2,
               .generation = number,
               .step = 0,
               .payload = messages::WantValues{.buckets = {0}, .endpoint = "at"}});
    EXPECT_EQ(about_to_send<messages::Fetch>(m), number == 3 ? 1 : 0);
  }
}

// With adaptive scaling, repeated steps after a checkpoint may differ from the first ones.
TEST(ShardedMember, ForgetsStepsThatWillBeRepeatedAlsoIfItCannotReadTheCheckpoint) {
  for (const bool adaptive : {false, true}) {
    MemberOptions options{.self = 1, .endpoint = "at", .vranks = kShardedVranks, .steps = 10};
    if (adaptive) options.scaling = {.batch = 4, .batch_max = 8, .ramp_steps = 1, .goal = 400};
    Member m(options);
    m.introduce(ShardedMembers::kCoordinator, {});
    m.receive({.sender = ShardedMembers::kCoordinator, .payload = messages::Welcome{}});
    m.receive({.sender = 2,
               .step = 3,
               .payload = messages::StatePieces{
                   .parts = 1, .attempt = 7, .last = true, .facts = {encode_facts(StepFacts{.step = 2})}}});
    m.receive({.sender = ShardedMembers::kCoordinator, .generation = 2, .payload = messages::Welcome{.restore = 1}});
    m.catching_up().cannot_load(m.catching_up().load());
    (void)m.outbox().take();
    m.receive({.sender = ShardedMembers::kCoordinator, .generation = 3, .payload = messages::Fence{}});
    EXPECT_EQ(about_to_send<messages::Facts>(m), adaptive ? 0 : 1);
  }
}

}  // namespace
}  // namespace elinvar
