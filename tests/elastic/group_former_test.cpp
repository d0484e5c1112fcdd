// Groups of GPUs that form in parallel with training (elastic/session/group_former.h), with the NCCL of
// tests/emulation/nccl.h.
#ifdef ELINVAR_EMULATION
#include "elastic/session/group_former.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "tensor/base/check.h"
#include "tests/comm/group_members.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using test::expect_sum;

// The callbacks of a former in order, and the groups that it has formed.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> told;
  std::map<int64_t, std::shared_ptr<GpuGroup>> groups;
  std::optional<NcclId> id;

  GroupFormer::Tells tells() {
    return {.named = [this](int64_t g, const NcclId& name) { add(fmt::format("named {}", g), [&] { id = name; }); },
            .formed =
                [this](int64_t g, std::shared_ptr<GpuGroup> group) {
                  add(fmt::format("formed {}", g), [&] { groups[g] = std::move(group); });
                },
            .failed = [this](int64_t g, const std::string&) { add(fmt::format("failed {}", g), [] {}); },
            .not_shrunk = [this](int64_t g) { add(fmt::format("not shrunk {}", g), [] {}); },
            .broke = [this](int64_t g, const std::string& why) { add(fmt::format("broke {}: {}", g, why), [] {}); }};
  }
  template <class F>
  void add(const std::string& what, F f) {
    const std::lock_guard lock(mutex);
    f();
    told.push_back(what);
    changed.notify_all();
  }
  std::vector<std::string> wait_for(size_t words) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, 20s, [&] { return told.size() >= words; });
    return told;
  }
};

TEST(GroupFormer, FormsGroupsAndGivesUpThoseThatAreOver) {
  Heard a, b;
  GroupFormer first(emulation::nccl({}), a.tells(), 20s), second(emulation::nccl({}), b.tells(), 20s);
  using Words = std::vector<std::string>;
  first.form({.generation = 3, .members = 2, .me = 0});  // its other member never comes
  EXPECT_EQ(a.wait_for(1), Words{"named 3"});
  first.form({.generation = 4, .members = 2, .me = 0});  // gives up the group of generation 3
  EXPECT_EQ(a.wait_for(2), (Words{"named 3", "named 4"}));
  second.form({.generation = 4, .members = 2, .me = 1, .id = a.id});
  EXPECT_EQ(a.wait_for(3).back(), "formed 4");
  EXPECT_EQ(b.wait_for(1), Words{"formed 4"});
  const std::weak_ptr<GpuGroup> over = a.groups.at(4);
  a.groups.clear();
  first.drop_before(4);
  EXPECT_FALSE(over.expired());
  first.drop_before(5);
  for (int i = 0; i < 4000 && !over.expired(); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(over.expired());
  first.form({.generation = 4, .members = 2, .me = 0});  // too late
  first.form({.generation = 6, .members = 2, .me = 0});
  EXPECT_EQ(a.wait_for(4).back(), "named 6");
}

// Three members have a group of generation 1, and the last one is gone.
TEST(GroupFormer, MakesAGroupFromTheOneBefore) {
  struct Case {
    std::string name;
    emulation::NcclFault fault;  // for the second member
    bool shrinks;
  };
  for (const Case& c : {Case{"shrunk", {}, true}, Case{"fails", {.shrink_fails = true}, false},
                        Case{"hangs", {.shrink_hangs = true}, false}}) {
    Heard heard[3];
    std::unique_ptr<GroupFormer> formers[3];
    for (int m = 0; m < 3; ++m)
      formers[m] = std::make_unique<GroupFormer>(emulation::nccl(m == 1 ? c.fault : emulation::NcclFault{}),
                                                 heard[m].tells(), m == 1 ? 2s : 20s);
    formers[0]->form({.generation = 1, .members = 3, .me = 0});
    (void)heard[0].wait_for(1);
    for (int m : {1, 2}) formers[m]->form({.generation = 1, .members = 3, .me = m, .id = heard[0].id});
    EXPECT_EQ(heard[0].wait_for(2).back(), "formed 1");
    for (int m : {1, 2}) EXPECT_EQ(heard[m].wait_for(1).back(), "formed 1");
    for (int m : {0, 1}) {
      formers[m]->drop_before(2, 1);  // a fence
      EXPECT_TRUE(heard[m].groups.at(1)->whole());
      formers[m]->form({.generation = 2, .members = 2, .me = m, .from = 1, .gone = {2}});
      formers[m]->drop_before(2);
    }
    if (!c.shrinks) {
      EXPECT_EQ(heard[1].wait_for(2).back(), "not shrunk 2") << c.name;
      formers[0]->form({.generation = 2, .members = 2, .me = 0});
      EXPECT_EQ(heard[0].wait_for(3).back(), "named 2") << "and gives up what it waits for";
      formers[1]->form({.generation = 2, .members = 2, .me = 1, .id = heard[0].id});
    }
    EXPECT_EQ(heard[0].wait_for(c.shrinks ? 3 : 4).back(), "formed 2") << c.name;
    EXPECT_EQ(heard[1].wait_for(c.shrinks ? 2 : 3).back(), "formed 2") << c.name;
    const std::jthread other([&] { expect_sum(heard[1].groups.at(2)); });
    expect_sum(heard[0].groups.at(2));
  }
}

// The same members continue with the group. A group that never existed is reported at once.
TEST(GroupFormer, KeepsAGroupForTheNextGeneration) {
  Heard a, b;
  GroupFormer first(emulation::nccl({}), a.tells(), 20s), second(emulation::nccl({}), b.tells(), 20s);
  first.form({.generation = 1, .members = 2, .me = 0});
  (void)a.wait_for(1);
  second.form({.generation = 1, .members = 2, .me = 1, .id = a.id});
  (void)a.wait_for(2);
  (void)b.wait_for(1);
  for (GroupFormer* former : {&first, &second}) {
    former->form({.generation = 2, .members = 2, .me = 0, .from = 1});
    former->drop_before(2);
  }
  const std::jthread other([&] { expect_sum(b.groups.at(1)); });
  expect_sum(a.groups.at(1));
  first.form({.generation = 3, .members = 2, .me = 0, .from = 1});
  EXPECT_EQ(a.wait_for(3).back(), "not shrunk 3");
}

TEST(GroupFormer, TellsWhyThereIsNoGroup) {
  Heard heard;
  GroupFormer former(emulation::nccl({.init_fails = true}), heard.tells(), 20s);
  former.form({.generation = 1, .members = 2, .me = 0});
  EXPECT_EQ(heard.wait_for(2), (std::vector<std::string>{"named 1", "failed 1"}));
}

// A callback may throw, for example if a message cannot be sent. The process continues and reports it.
TEST(GroupFormer, PassesOnWhatItsListenersThrow) {
  using Words = std::vector<std::string>;
  for (const bool named : {true, false}) {
    Heard heard;
    GroupFormer::Tells tells = heard.tells();
    if (named) tells.named = [](int64_t, const NcclId&) { fail("this cannot be told"); };
    else tells.failed = [](int64_t, const std::string&) { fail("nor can this"); };
    GroupFormer former(emulation::nccl({.init_fails = true}), tells, 20s);
    former.form({.generation = 1, .members = 2, .me = 0});
    EXPECT_EQ(heard.wait_for(named ? 1 : 2),
              named ? Words{"broke 1: this cannot be told"} : (Words{"named 1", "broke 1: nor can this"}));
    former.form({.generation = 2, .members = 2, .me = 0});
    EXPECT_EQ(heard.wait_for(named ? 2 : 4).back(), named ? "broke 2: this cannot be told" : "broke 2: nor can this");
  }
}

}  // namespace
}  // namespace elinvar
#endif
