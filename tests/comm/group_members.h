#pragma once
// Members of a group of GPUs as threads of this process, over the NCCL of tests/emulation/nccl.h, and the sums of their
// leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/group_sum.h"
#include "tensor/ops/pointwise.h"
#include "tests/emulation/nccl.h"
#include "tests/support/bits.h"

namespace elinvar::test {

using namespace std::chrono_literals;

inline const Device kGpu{DeviceKind::emulated};

// Calls f(member, its group) for each member in a thread of its own.
template <class F>
void in_group(int members, F f, const std::vector<emulation::NcclFault>& faults = {}) {
  const NcclId id = emulation::nccl({})->make_id();
  std::vector<std::jthread> threads;
  for (int m = 0; m < members; ++m)
    threads.emplace_back([&, m] {
      const auto nccl = emulation::nccl(static_cast<size_t>(m) < faults.size() ? faults[static_cast<size_t>(m)]
                                                                               : emulation::NcclFault{});
      f(m, GpuGroup::form(*nccl, id, members, m, 20s));
    });
}

inline const std::vector<Shape> kShapes = {{3, 3}, {200}, {1}, {5}};     // the last one is not scaled
inline const Buckets kBuckets(kShapes, 100, BucketCuts{.whole = true});  // the last two share one

inline std::vector<Tensor> random_leaf(int leaf) {
  std::mt19937 random(static_cast<unsigned>(leaf));
  std::vector<Tensor> tensors;
  for (const Shape& shape : kShapes) {
    std::vector<float> values;
    for (int64_t i = 0; i < shape.numel(); ++i)
      values.push_back(std::ldexp(static_cast<float>(random()) / 1e9f - 2.0f, static_cast<int>(random() % 20) - 10));
    tensors.push_back(Tensor::from(values, shape));
  }
  return tensors;
}

// As the host adds up all leaves but the absent ones.
inline std::vector<Tensor> host_sum(int leaves, const std::vector<int>& absent, double factor) {
  TreeReducer reducer(leaves);
  for (int v = 0; v < leaves; ++v)
    reducer.add(v, std::count(absent.begin(), absent.end(), v) ? std::vector<Tensor>() : random_leaf(v));
  std::vector<Tensor> sum = reducer.take_root();
  for (size_t i = 0; i + 1 < sum.size(); ++i) sum[i] = mul(sum[i], Tensor::scalar(factor));
  return sum;
}

// Each member's leaves, reduced as they come, on its GPU.
inline std::vector<Subtree> reduced(const std::vector<int>& mine, int leaves, const std::vector<int>& absent) {
  std::vector<Subtree> roots;
  TreeReducer reducer(leaves);
  const auto put_away = [&] {
    roots.insert(roots.end(), reducer.subtrees().begin(), reducer.subtrees().end());
    reducer = TreeReducer(leaves);
  };
  for (const int v : mine) {
    if (!reducer.subtrees().empty() && reducer.subtrees().back().end != v) put_away();
    std::vector<Tensor> values;
    if (!std::count(absent.begin(), absent.end(), v)) values = random_leaf(v);
    for (Tensor& t : values) t = t.to(kGpu);
    reducer.add(v, std::move(values));
  }
  put_away();
  return roots;
}

inline void put(GroupSum& sum, int bucket, std::vector<Subtree> mine) {
  for (Subtree& root : mine)
    if (!root.values.empty()) root.values = kBuckets.cut(bucket, root.values);
  sum.put(bucket, std::move(mine));
}

inline GroupSum begin(const std::shared_ptr<GpuGroup>& group, GroupSum::Options options,
                      const std::vector<std::vector<GroupRoot>>& roots, const std::vector<Subtree>& mine) {
  options.buckets = kBuckets;
  GroupSum sum(group, std::move(options), roots);
  for (int b = 0; b < kBuckets.count(); ++b) put(sum, b, mine);
  return sum;
}

inline GroupSum::State finish(GroupSum& sum, std::string& why, std::chrono::milliseconds limit = 20000ms) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  GroupSum::State state;
  while ((state = sum.poll(why)) == GroupSum::State::pending && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(100us);
  return state;
}

// The sums of all buckets, on the device; none if all leaves are absent.
inline void expect_sums(const GroupSum& sum, const std::vector<Tensor>& expected) {
  const std::map<int, std::vector<Tensor>> sums = sum.sums();
  ASSERT_EQ(sums.size(), expected.empty() ? 0u : static_cast<size_t>(kBuckets.count()));
  for (const auto& [bucket, slices] : sums) {
    const std::vector<Tensor> wanted = kBuckets.cut(bucket, expected);
    ASSERT_EQ(slices.size(), wanted.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(slices[i].device(), kGpu);
      EXPECT_TRUE(same_bits(slices[i].to(Device{}), wanted[i])) << "bucket " << bucket << ", tensor " << i;
    }
  }
}

// The sum of a group whose members have one leaf each: 0, 1, ..
inline void expect_sum(const std::shared_ptr<GpuGroup>& group) {
  const int members = group->members(), me = group->me();
  std::vector<std::vector<GroupRoot>> roots;
  for (int m = 0; m < members; ++m) roots.push_back({{m, m + 1, true}});
  std::vector<Tensor> leaf = random_leaf(me);
  for (Tensor& t : leaf) t = t.to(kGpu);
  GroupSum sum = begin(group, {.leaves = members}, roots, {{me, me + 1, leaf}});
  std::string why;
  ASSERT_EQ(finish(sum, why), GroupSum::State::done) << why;
  expect_sums(sum, host_sum(members, {}, 1));
}

}  // namespace elinvar::test
