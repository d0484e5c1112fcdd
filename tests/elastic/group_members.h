#pragma once
// Members of a group of GPUs that exchange messages without processes or a network, and a test's actions on them,
// message by message.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "elastic/protocol/member.h"
#include "tests/emulation/nccl.h"

namespace elinvar::test {

// Members 1, 2, .. of a generation that is to form a group, each with two virtual ranks at first, and a network that
// delivers everything at once.
struct GroupMembers {
  static constexpr PeerId kCoordinator = 9;
  static constexpr Device kGpu{DeviceKind::emulated};
  explicit GroupMembers(int count = 2) : vranks(2 * count) {
    for (PeerId peer = 1; peer <= static_cast<PeerId>(count); ++peer) {
      Member& m =
          *members
               .emplace(peer, std::make_unique<Member>(MemberOptions{
                                  .self = peer, .vranks = vranks, .steps = 10, .bucket_elements = 3, .groups = true}))
               .first->second;
      m.introduce(kCoordinator, {});
      m.receive({.sender = kCoordinator, .payload = messages::Welcome{.restore = 0}});
      m.loaded(m.catching_up().load());
      m.learn_layout(leaf(0));
    }
    start(1, 0);
  }

  // Returns a generation of the present members. The last member takes the virtual ranks of missing ones.
  Generation generation(int64_t number, int64_t first_step, std::optional<int64_t> from = {}) const {
    Generation generation{.number = number, .first_step = first_step, .members = {}, .next_id = 9, .reason = ""};
    generation.group = true;
    generation.group_from = from;
    for (const auto& [peer, m] : members) {
      const int first = 2 * static_cast<int>(generation.members.size());
      const bool last = peer == members.rbegin()->first;
      const std::vector<Interval> share = {{first, last ? vranks : first + 2}};
      generation.members.push_back(
          {.id = static_cast<int>(peer), .peer = peer, .endpoint = "e", .share = share, .first_share = share});
    }
    return generation;
  }
  void start(int64_t number, int64_t first_step, std::optional<int64_t> from = {}) {
    const Generation generation = this->generation(number, first_step, from);
    for (auto& [peer, m] : members)
      m->receive({.sender = kCoordinator, .generation = number, .payload = messages::Start{.record = generation}});
    deliver();
  }

  static RankGradient leaf(int vrank, Device device = kGpu) {
    const auto tensor = [&](int64_t n, double x) { return Tensor::full({n}, x + vrank, DType::f32, device); };
    return {.gradients = {tensor(3, 0.5), tensor(2, 0.25)},
            .batch_statistics = {tensor(1, 0.125)},
            .facts = {.count = 1, .samples = 1}};
  }

  // Delivers all messages. Records the kinds of those between members and to the coordinator since the last call.
  void deliver() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [peer, m] : members)
        for (Action& action : m->outbox().take()) {
          if (action.what != Action::What::send) continue;
          action.message.sender = peer;
          (action.peer == kCoordinator ? reports : sent).push_back(action.message.payload.kind().name);
          if (const auto* used = action.message.as<messages::GroupUsed>()) made = used->made;
          if (const auto* answer = action.message.as<messages::Fenced>()) whole[peer] = answer->group;
          if (!members.contains(action.peer)) continue;
          members.at(action.peer)->receive(action.message);
          any = true;
        }
    }
  }

  // Forms the requested groups, as a session would.
  void form_groups(int64_t generation) {
    const auto first = members.begin();
    const std::vector<GroupRequest> asked = first->second->groups().take_requests();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].generation, generation);
    EXPECT_EQ(asked[0].me, 0);
    EXPECT_FALSE(asked[0].id || asked[0].from);
    for (auto it = std::next(first); it != members.end(); ++it)
      EXPECT_TRUE(it->second->groups().take_requests().empty()) << "it does not know the name yet";
    const auto nccl = emulation::nccl({});
    const NcclId id = nccl->make_id();
    first->second->groups().named(generation, id);
    deliver();
    for (auto it = std::next(first); it != members.end(); ++it) {
      const std::vector<GroupRequest> others = it->second->groups().take_requests();
      ASSERT_EQ(others.size(), 1u);
      EXPECT_EQ(others[0].id, id);
    }
    const int count = static_cast<int>(members.size());
    each_at_once([&](int m) { return GpuGroup::form(*nccl, id, count, m, std::chrono::seconds(20)); });
    for (auto& [peer, m] : members) m->groups().formed(generation, groups.at(peer));
  }
  // Makes groups from the previous one without these of its members.
  void shrink_groups(int64_t generation, const std::vector<int>& gone) {
    for (auto& [peer, m] : members) {
      const std::vector<GroupRequest> asked = m->groups().take_requests();
      ASSERT_EQ(asked.size(), 1u);
      EXPECT_EQ(asked[0].generation, generation);
      EXPECT_EQ(asked[0].gone, gone);
      EXPECT_TRUE(asked[0].from && !asked[0].id);
    }
    const std::map<PeerId, std::shared_ptr<GpuGroup>> before = groups;
    auto peer = members.begin();
    std::vector<std::shared_ptr<GpuGroup>> parents;
    for (; peer != members.end(); ++peer) parents.push_back(before.at(peer->first));
    each_at_once([&](int m) { return parents[static_cast<size_t>(m)]->shrink(gone, std::chrono::seconds(20)); });
    for (auto& [p, m] : members) m->groups().formed(generation, groups.at(p));
  }
  template <class F>
  void each_at_once(F f) {
    std::vector<std::shared_ptr<GpuGroup>> here(members.size());
    {
      std::vector<std::jthread> threads;
      for (int m = 0; m < static_cast<int>(members.size()); ++m)
        threads.emplace_back([&, m] { here[static_cast<size_t>(m)] = f(m); });
    }
    groups.clear();
    for (const auto& [peer, m] : members) groups[peer] = here[groups.size()];
  }

  void add_leaves() {
    for (auto& [peer, m] : members)
      for (const int v : m->gradients().todo()) m->gradients().add(m->position().step, v, leaf(v), 1);
  }
  void contribute() {
    for (auto& [peer, m] : members) m->gradients().contribute(std::nullopt);
    deliver();
  }
  // Runs until all members have the result. Returns its device.
  Device finish() {
    std::map<PeerId, bool> done;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (done.size() < members.size() && std::chrono::steady_clock::now() < deadline) {
      for (auto& [peer, m] : members)
        if (!done.contains(peer) && m->reduce() == Member::Progress::complete) done[peer] = true;
      deliver();
    }
    EXPECT_EQ(done.size(), members.size());
    Device device;
    const float n = static_cast<float>(vranks), sum = n * (n - 1) / 2;
    for (auto& [peer, m] : members) {
      const Reduced reduced = m->reduction().take_reduced();
      device = reduced.gradients.at(0).device();
      for (const float x : reduced.gradients[0].to(Device{}).span<float>())
        EXPECT_EQ(x, (n * 0.5f + sum) * static_cast<float>(1.0 / vranks));
      for (const float x : reduced.gradients[1].to(Device{}).span<float>())
        EXPECT_EQ(x, (n * 0.25f + sum) * static_cast<float>(1.0 / vranks));
      EXPECT_EQ(reduced.batch_statistics[0].to(Device{}).item(), n * 0.125f + sum);
      m->advance({});
    }
    deliver();
    return device;
  }
  Device step() {
    sent.clear();
    reports.clear();
    add_leaves();
    contribute();
    return finish();
  }
  int64_t count(const std::string& kind) const { return std::count(sent.begin(), sent.end(), kind); }
  int64_t told(const std::string& kind) const { return std::count(reports.begin(), reports.end(), kind); }

  int vranks;
  std::map<PeerId, std::unique_ptr<Member>> members;
  std::map<PeerId, std::shared_ptr<GpuGroup>> groups;  // the newest
  std::map<PeerId, RankGradient> opened;               // rank gradients put gradient by gradient
  std::vector<Tensor> spoiled;
  std::vector<std::string> sent, reports;
  std::string made;                 // how the group in use was made
  std::map<PeerId, int64_t> whole;  // the group that each member reported whole in its answer to a fence
};

}  // namespace elinvar::test
