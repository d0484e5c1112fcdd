// Groups of GPUs (comm/gpu_group.h, comm/group_sum.h) over the NCCL of tests/emulation/nccl.h; members are threads.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "comm/group_sum.h"
#include "comm/nccl.h"
#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"
#include "tests/support/bits.h"
#ifdef ELINVAR_EMULATION
#include "tests/comm/group_members.h"
#endif

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using test::same_bits;

TEST(Nccl, TheCpuHasNone) {
  const FoundNccl found = find_nccl(Device{});
  EXPECT_EQ(found.nccl, nullptr);
  EXPECT_EQ(found.why_not, "it computes on the CPU");
}

TEST(Nccl, AnIdIsTheSameAfterItsText) {
  NcclId id;
  for (size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<unsigned char>(7 * i);
  EXPECT_EQ(NcclId::parse(id.hex()), id);
  for (const std::string& wrong : {std::string(), std::string(255, '0'), std::string(256, 'g'), std::string(258, '0')})
    EXPECT_THROW((void)NcclId::parse(wrong), UsageError);
}

// If the library is installed, its functions are found and answer, with or without a GPU.
TEST(Nccl, TheLibraryIsThereOrItIsSaidWhatToDo) {
  const FoundNccl found = find_nccl({DeviceKind::cuda});
  if (found.nccl) EXPECT_EQ(found.nccl->version().substr(0, 7), "NCCL 2.");
  else EXPECT_NE(found.why_not.find("install"), std::string::npos) << found.why_not;
}

TEST(Buckets, OfWholeTensorsCutNone) {
  const Buckets buckets({{3, 3}, {90}, {}, {200}, {0}, {100}, {1}}, 100, BucketCuts{.whole = true});
  std::vector<std::vector<int>> tensors;
  for (int b = 0; b < buckets.count(); ++b) {
    tensors.emplace_back();
    for (const Slice& s : buckets.slices(b)) {
      EXPECT_EQ(s.begin, 0);
      EXPECT_EQ(s.end, buckets.shapes()[static_cast<size_t>(s.tensor)].numel());
      EXPECT_EQ(buckets.of(s.tensor), (std::pair{b, b + 1}));
      tensors.back().push_back(s.tensor);
    }
  }
  EXPECT_EQ(tensors, (std::vector<std::vector<int>>{{0, 1, 2}, {3}, {5}, {6}}));
  EXPECT_EQ(buckets.of(4).first, buckets.of(4).second) << "it has no elements";
}

TEST(FlatLayout, ShardsAreAlignedAndMakeTheWhole) {
  const std::vector<Shape> shapes = {{3}, {64}, {5, 41}, {}, {0}, {7}};
  const FlatLayout layout(shapes);
  EXPECT_EQ(layout.elements(), 64 + 64 + 256 + 64 + 0 + 64);
  for (const int members : {1, 2, 3, 7, 20}) {
    int64_t at = 0;
    for (int m = 0; m < members; ++m) {
      const auto [begin, end] = layout.shard(m, members);
      EXPECT_EQ(begin, at);
      EXPECT_EQ(begin % FlatLayout::kAlign, 0);
      at = end;
    }
    EXPECT_EQ(at, layout.elements());
  }
  std::vector<Tensor> tensors;
  for (const Shape& shape : shapes) tensors.push_back(Tensor::full(shape, static_cast<double>(tensors.size()) + 1));
  const std::vector<Tensor> back = layout.views(layout.flatten(tensors));
  for (size_t i = 0; i < shapes.size(); ++i) EXPECT_TRUE(same_bits(back[i], tensors[i])) << i;
}

#ifdef ELINVAR_EMULATION

using namespace test;

TEST(GroupSum, HasTheBitsOfTheHostWhoeverHoldsWhichLeaves) {
  struct Case {
    int leaves;
    std::vector<std::vector<int>> shares;
    std::vector<int> absent;
  };
  const Case cases[] = {{4, {{0, 1}, {2, 3}}, {}},
                        {7, {{0, 1, 2}, {3}, {4, 5, 6}}, {}},
                        {6, {{1, 2, 3, 4}, {0, 5}}, {2}},     // not aligned, and of two intervals
                        {5, {{}, {0, 1, 2, 3, 4}, {}}, {4}},  // members without leaves
                        {3, {{0}, {1}, {2}}, {0, 2}},         // one leaf is the sum
                        {3, {{0}, {1, 2}}, {0, 1, 2}},        // none is
                        {9, {{0}, {1}, {2}, {3}, {4, 5, 6, 7}, {}, {}, {}, {8}}, {}}};  // shards without elements
  for (const Case& c : cases) {
    const int members = static_cast<int>(c.shares.size());
    const double factor = 1.0 / 3;
    std::vector<std::vector<Subtree>> mine;
    std::vector<std::vector<GroupRoot>> roots;
    for (const std::vector<int>& share : c.shares) {
      mine.push_back(reduced(share, c.leaves, c.absent));
      roots.emplace_back();
      for (const Subtree& root : mine.back()) roots.back().push_back({root.begin, root.end, !root.values.empty()});
    }
    const std::vector<Tensor> expected = host_sum(c.leaves, c.absent, factor);
    in_group(members, [&](int m, const std::shared_ptr<GpuGroup>& group) {
      for (int again = 0; again < 2; ++again) {  // what was sent stays as it is
        GroupSum sum = begin(group, {.leaves = c.leaves, .scaled = kShapes.size() - 1, .factor = factor}, roots,
                             mine[static_cast<size_t>(m)]);
        std::string why;
        ASSERT_EQ(finish(sum, why), GroupSum::State::done) << why;
        expect_sums(sum, expected);
        EXPECT_TRUE(group->whole());
      }
      group->retire(5s);
    });
  }
}

// Two members hold leaf 0 and two hold leaf 1, and each contributes some of the buckets.
TEST(GroupSum, MembersWithTheSameLeavesContributeDifferentBuckets) {
  const auto contributes = [](int member, int bucket) { return member / 2 == 0 ? member == bucket % 2 : member == 3; };
  const std::vector<std::vector<GroupRoot>> roots = {{{0, 1, true}}, {{0, 1, true}}, {{1, 2, true}}, {{1, 2, true}}};
  in_group(4, [&](int m, const std::shared_ptr<GpuGroup>& group) {
    std::vector<Tensor> leaf = random_leaf(m / 2);
    for (Tensor& t : leaf) t = t.to(kGpu);
    GroupSum sum(group, {.leaves = 2, .buckets = kBuckets, .contributes = contributes}, roots);
    for (int b = 0; b < kBuckets.count(); ++b) {
      if (contributes(m, b)) put(sum, b, {{m / 2, m / 2 + 1, leaf}});
      else EXPECT_THROW(put(sum, b, {{m / 2, m / 2 + 1, leaf}}), UsageError) << "another member contributes it";
    }
    std::string why;
    ASSERT_EQ(finish(sum, why), GroupSum::State::done) << why;
    expect_sums(sum, host_sum(2, {}, 1));
    EXPECT_THROW(GroupSum(group, {.leaves = 2, .buckets = kBuckets}, roots), UsageError) << "leaves come twice";
    group->retire(5s);
  });
}

// Tensors of any type and size go between some of the members.
TEST(GpuGroup, CarriesTensorsBetweenSomeOfItsMembers) {
  in_group(3, [](int m, const std::shared_ptr<GpuGroup>& group) {
    if (m == 1) return group->retire(5s);
    const Tensor sent = Tensor::full({3}, 1 + m, DType::u8, Device{}).to(kGpu), none = sent.slice(0, 1, 1);
    const Tensor received = Tensor::empty({3}, DType::u8, kGpu);
    const std::vector<GroupTensor> sends = {{none, 2 - m}, {sent, 2 - m}};
    const std::vector<GroupTensor> receives = {{none, 2 - m}, {received, 2 - m}};
    group->transfer(sends, receives);
    EXPECT_FALSE(group->whole());
    std::string why;
    while (group->complete(why) == GpuGroup::State::pending) std::this_thread::sleep_for(100us);
    EXPECT_EQ(group->complete(why), GpuGroup::State::done) << why;
    EXPECT_TRUE(group->whole());
    EXPECT_TRUE(same_bits(received.to(Device{}), Tensor::full({3}, 3 - m, DType::u8, Device{})));
    EXPECT_THROW(group->transfer({{{sent.to(Device{}), 2 - m}}}, {}), UsageError) << "it lies on the CPU";
    group->retire(5s);
  });
}

// Otherwise a fence could come when one member has carried a transfer and the other has not begun it.
TEST(GpuGroup, NobodyHasCarriedATransferBeforeItsPeerHasBegunIt) {
  std::latch looked(1);
  in_group(2, [&](int m, const std::shared_ptr<GpuGroup>& group) {
    const Tensor one = Tensor::full({1}, 1 + m, DType::u8, Device{}).to(kGpu), none = one.slice(0, 0, 0);
    const Tensor received = Tensor::empty({1}, DType::u8, kGpu);
    const auto transfer = [&] {
      const std::vector<GroupTensor> first = {{one, 1}}, second = {{none, 0}}, there = {{none, 1}};
      const std::vector<GroupTensor> here = {{received, 0}};
      if (m == 0) group->transfer(first, there);
      else group->transfer(second, here);
    };
    const auto completes = [&](std::chrono::milliseconds limit) {
      std::string why;
      const auto deadline = std::chrono::steady_clock::now() + limit;
      while (std::chrono::steady_clock::now() < deadline)
        if (group->complete(why) == GpuGroup::State::done) return true;
      return false;
    };
    if (m == 1) looked.wait();
    transfer();
    if (m == 0) {
      EXPECT_FALSE(completes(20ms)) << "the other sends nothing, and has not begun";
      looked.count_down();
    }
    EXPECT_TRUE(completes(20s));
    group->retire(5s);
  });
}

// A reduction makes many transfers before it waits for the device.
TEST(GpuGroup, KeepsTensorsOnlyUntilTheirTransferIsQueued) {
  in_group(2, [&](int m, const std::shared_ptr<GpuGroup>& group) {
    const Tensor sent = Tensor::full({5}, m, DType::f32, kGpu), received = Tensor::empty({5}, DType::f32, kGpu);
    group->transfer({{{sent, 1 - m}}}, {{{received, 1 - m}}});
    EXPECT_FALSE(sent.unique() || received.unique());
    std::string why;
    while (group->poll(why) == GpuGroup::State::pending) std::this_thread::sleep_for(100us);
    EXPECT_TRUE(sent.unique() && received.unique());
    EXPECT_FALSE(group->whole()) << "nobody has seen it carried";
    group->abort();
  });
}

// Whatever else is still computed.
TEST(GroupSum, ABucketIsAddedUpAsSoonAsAllHaveIt) {
  in_group(2, [](int m, const std::shared_ptr<GpuGroup>& group) {
    std::vector<Tensor> leaf = random_leaf(m);
    for (Tensor& t : leaf) t = t.to(kGpu);
    const std::vector<Subtree> mine = {{m, m + 1, leaf}};
    GroupSum sum(group, {.leaves = 2, .buckets = kBuckets}, {{{0, 1, true}}, {{1, 2, true}}});
    std::string why;
    const auto poll_until = [&](int64_t progress) {
      const auto deadline = std::chrono::steady_clock::now() + 20s;
      while (sum.progress() < progress && std::chrono::steady_clock::now() < deadline)
        ASSERT_EQ(sum.poll(why), GroupSum::State::pending) << why;
      EXPECT_EQ(sum.progress(), progress);
    };
    put(sum, 2, mine);
    poll_until(2);  // its roots are there, and its shards
    EXPECT_FALSE(group->whole());
    put(sum, 0, mine);
    EXPECT_EQ(finish(sum, why, 20ms), GroupSum::State::pending) << "the order of buckets is that of all members";
    EXPECT_EQ(sum.progress(), 2);
    EXPECT_THROW(put(sum, 0, mine), UsageError) << "once";
    EXPECT_THROW(put(sum, 2, mine), UsageError);
    put(sum, 1, mine);
    ASSERT_EQ(finish(sum, why), GroupSum::State::done) << why;
    EXPECT_TRUE(group->whole());
    expect_sums(sum, host_sum(2, {}, 1));
  });
}

// As with ZeRO: tensors are cut, and the sum of each bucket but the last goes to its keepers alone.
TEST(GroupSum, KeepersGetTheSumsOfTheirBuckets) {
  const Buckets buckets(kShapes, /*elements=*/64, BucketCuts{.multiple = 16});
  ASSERT_GE(buckets.count(), 4);
  std::vector<std::vector<int>> keepers;
  for (int b = 0; b + 1 < buckets.count(); ++b) keepers.push_back(b % 3 == 0 ? std::vector{2} : std::vector{b % 2, 2});
  in_group(3, [&](int m, const std::shared_ptr<GpuGroup>& group) {
    std::vector<Tensor> leaf = random_leaf(m);
    for (Tensor& t : leaf) t = t.to(kGpu);
    GroupSum sum(group, {.leaves = 3, .buckets = buckets, .keepers = keepers},
                 {{{0, 1, true}}, {{1, 2, true}}, {{2, 3, true}}});
    for (int b = buckets.count() - 1; b >= 0; --b) sum.put(b, {{m, m + 1, buckets.cut(b, leaf)}});
    std::string why;
    ASSERT_EQ(finish(sum, why), GroupSum::State::done) << why;
    const std::map<int, std::vector<Tensor>> sums = sum.sums();
    const std::vector<Tensor> whole = host_sum(3, {}, 1);
    for (int b = 0; b < buckets.count(); ++b) {
      const bool gets = b + 1 == buckets.count() || std::ranges::count(keepers[static_cast<size_t>(b)], m) > 0;
      ASSERT_EQ(sums.contains(b), gets) << "bucket " << b << ", member " << m;
      if (!gets) continue;
      const std::vector<Tensor> expected = buckets.cut(b, whole);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(sums.at(b)[i].to(Device{}), expected[i])) << b;
    }
    group->retire(5s);
  });
}

TEST(GroupSum, RefusesRootsThatAreNotTheTree) {
  in_group(2, [](int m, const std::shared_ptr<GpuGroup>& group) {
    const auto sum = [&](std::vector<std::vector<GroupRoot>> roots) {
      GroupSum(group, {.leaves = 4, .buckets = kBuckets, .scaled = 0}, std::move(roots));
    };
    EXPECT_THROW(sum({{{0, 2, false}}, {{2, 3, false}}}), UsageError) << "a leaf is missing, member " << m;
    EXPECT_THROW(sum({{{0, 3, false}}, {{3, 4, false}}}), UsageError) << "[0, 3) is no node";
    EXPECT_THROW(sum({{{0, 4, false}}}), UsageError) << "one member has said nothing";
    EXPECT_NO_THROW(sum({{{0, 2, false}}, {{2, 4, false}}}));
  });
}

// If a member is gone, the others fail; if it hangs, they wait until they give up. Either way they are free at once.
TEST(GroupSum, AMemberThatIsGoneOrHangsIsTold) {
  for (const bool gone : {true, false}) {
    std::vector<emulation::NcclFault> faults(3);
    (gone ? faults[1].transfer_fails : faults[1].transfer_hangs) = 1;
    std::vector<std::vector<GroupRoot>> roots;
    for (int m = 0; m < 3; ++m) roots.push_back({{m, m + 1, true}});
    std::latch all(3);
    in_group(
        3,
        [&](int m, std::shared_ptr<GpuGroup> group) {
          std::vector<Tensor> leaf = random_leaf(m);
          for (Tensor& t : leaf) t = t.to(kGpu);
          auto sum = std::make_unique<GroupSum>(begin(group, {.leaves = 3}, roots, {{m, m + 1, leaf}}));
          std::string why;
          const GroupSum::State state = finish(*sum, why, gone ? 20000ms : 100ms);
          EXPECT_EQ(state, gone ? GroupSum::State::failed : GroupSum::State::pending);
          if (gone) {
            EXPECT_NE(why.find(m == 1 ? "told to fail" : "is gone"), std::string::npos) << why;
          }
          if (!gone) all.arrive_and_wait();
          sum.reset();
          EXPECT_FALSE(group->whole());
          const auto began = std::chrono::steady_clock::now();
          group->retire(20s);
          group.reset();
          EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
        },
        faults);
  }
}

// The sum of two members with a leaf each, on their devices.
GroupSum sum_of_two(int m, const std::shared_ptr<GpuGroup>& group) {
  std::vector<Tensor> leaf = random_leaf(m);
  for (Tensor& t : leaf) t = t.to(kGpu);
  return begin(group, {.leaves = 2}, {{{0, 1, true}}, {{1, 2, true}}}, {{m, m + 1, leaf}});
}

// `done` means queued, so a later failure must be reported as well.
TEST(GroupSum, ATransferThatBreaksOnTheDeviceIsTold) {
  std::vector<emulation::NcclFault> faults(2);
  faults[1].transfer_breaks = 2 * kBuckets.count();  // the last
  in_group(
      2,
      [](int m, const std::shared_ptr<GpuGroup>& group) {
        GroupSum sum = sum_of_two(m, group);
        std::string why;
        EXPECT_EQ(finish(sum, why), m == 1 ? GroupSum::State::failed : GroupSum::State::done);
        EXPECT_EQ(why, m == 1 ? "the emulation was told to fail" : "");
        EXPECT_EQ(group->whole(), m == 0);
      },
      faults);
}

TEST(GroupSum, WhatIsSentIsWhatWasToldAndLiesOnTheDevice) {
  in_group(2, [](int m, const std::shared_ptr<GpuGroup>& group) {
    const auto sum = [&](const Subtree& mine) {
      (void)begin(group, {.leaves = 2}, {{{0, 1, true}}, {{1, 2, true}}}, {mine});
    };
    EXPECT_THROW(sum({m, m + 1, random_leaf(m)}), UsageError) << "it lies on the CPU";
    EXPECT_THROW(sum({m, m + 1, {}}), UsageError) << "it is absent";
    EXPECT_THROW(sum({1 - m, 2 - m, random_leaf(m)}), UsageError) << "it is another's";
    EXPECT_TRUE(group->whole());
  });
}

TEST(GpuGroup, IsAbortedFromAnotherThread) {
  std::vector<emulation::NcclFault> faults(2);
  faults[0].transfer_hangs = 1;
  std::latch both_wait(2);  // a member that is aborted ends the other's sum, too
  in_group(
      2,
      [&](int m, const std::shared_ptr<GpuGroup>& group) {
        GroupSum sum = sum_of_two(m, group);
        std::string why;
        EXPECT_EQ(finish(sum, why, 20ms), GroupSum::State::pending);
        both_wait.arrive_and_wait();
        const std::jthread other([&] { group->abort(); });
        EXPECT_EQ(finish(sum, why), GroupSum::State::failed) << why;
      },
      faults);
}

TEST(GroupSum, LeavesOnTwoDevicesMeetOnTheCpu) {
  TreeReducer reducer(2);
  std::vector<Tensor> first = random_leaf(0);
  for (Tensor& t : first) t = t.to(kGpu);
  reducer.add(0, first);
  reducer.add(1, random_leaf(1));
  const std::vector<Tensor> sum = reducer.take_root(), expected = host_sum(2, {}, 1);
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_TRUE(same_bits(sum[i], expected[i])) << i;
}

TEST(GpuGroup, WhoeverDoesNotComeIsNotWaitedForLong) {
  const auto nccl = emulation::nccl({});
  const NcclId id = nccl->make_id();
  const auto said = [&](Nccl& with, std::chrono::duration<double> patience, const std::stop_token& stop = {}) {
    try {
      (void)GpuGroup::form(with, id, 2, 0, patience, stop);
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string("it has formed");
  };
  EXPECT_NE(said(*nccl, 0.03s).find("2 GPUs have not found each other within 0.03 s; NCCL_SOCKET_IFNAME"),
            std::string::npos);
  EXPECT_NE(said(*emulation::nccl({.init_fails = true}), 20s).find("told to fail"), std::string::npos);
  EXPECT_NE(said(*emulation::nccl({.init_hangs = true}), 0.03s).find("not found each other"), std::string::npos);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_NE(said(*nccl, 20s, stop.get_token()).find("not needed any more"), std::string::npos);
}

TEST(GpuGroup, ShrinksToThoseWhoStay) {
  in_group(5, [](int m, const std::shared_ptr<GpuGroup>& group) {
    expect_sum(group);
    if (m == 1 || m == 3) return;
    const std::shared_ptr<GpuGroup> fewer = group->shrink(std::vector<int>{3, 1}, 20s);
    EXPECT_EQ(fewer->members(), 3);
    EXPECT_EQ(fewer->me(), m / 2);
    expect_sum(fewer);
    EXPECT_TRUE(group->whole()) << "it is as it was";
    if (m == 0) return;
    expect_sum(fewer->shrink(std::vector<int>{0}, 20s));  // and again
  });
}

// What NCCL refuses, and where it waits without end, others wait for this one.
TEST(GpuGroup, ShrinksOnlyWhereAllWhoStayAgreeAndNothingIsUnderWay) {
  in_group(3, [](int m, const std::shared_ptr<GpuGroup>& group) {
    EXPECT_THROW((void)group->shrink(std::vector<int>{m}, 20s), UsageError) << "itself";
    EXPECT_THROW((void)group->shrink(std::vector<int>{(m + 1) % 3, (m + 2) % 3}, 20s), UsageError) << "it is alone";
    EXPECT_TRUE(group->whole());
    if (m == 2) return;
    if (m == 0) {
      EXPECT_THROW((void)group->shrink(std::vector<int>{1}, 0.05s), Failure) << "2 does not come";
      EXPECT_FALSE(group->whole()) << "what it has begun may never end";
      EXPECT_THROW((void)group->shrink(std::vector<int>{2}, 0.05s), Failure) << "it is in use";
    } else {
      EXPECT_THROW((void)group->shrink(std::vector<int>{2}, 0.05s), Failure) << "0 names another";
    }
  });
  std::latch all(2);
  in_group(2,
           [&](int m, const std::shared_ptr<GpuGroup>& group) {
             GroupSum sum = sum_of_two(m, group);
             std::string why;
             EXPECT_EQ(finish(sum, why, 20ms), GroupSum::State::pending);
             EXPECT_THROW((void)group->shrink(std::vector<int>{1 - m}, 20s), UsageError);
             all.arrive_and_wait();
           },
           {{.transfer_hangs = 1}, {.transfer_hangs = 1}});
}

#endif

}  // namespace
}  // namespace elinvar
