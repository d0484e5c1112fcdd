// A step whose rank gradients the members of model replicas compute together (tensor parallelism).
#include <gtest/gtest.h>

#include "tensor/ops/pointwise.h"
#include "tensor/reduction_tree.h"
#include "tests/elastic/replica_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::ReplicaJob;
using test::ReplicaMember;
using test::Sent;
using Progress = StepReduction::Progress;

// What a member alone would have: the mean of the gradients, and the sum of the batch statistics.
std::vector<Tensor> reduced_alone(int vranks) {
  TreeReducer reducer(vranks);
  int64_t count = 0;
  for (int v = 0; v < vranks; ++v) {
    RankGradient gradient = ReplicaMember::whole(v);
    count += gradient.facts.count;
    std::vector<Tensor> values = std::move(gradient.gradients);
    std::ranges::move(gradient.batch_statistics, std::back_inserter(values));
    reducer.add(v, std::move(values));
  }
  std::vector<Tensor> root = reducer.take_root();
  for (size_t t = 0; t < 3; ++t) root[t] = mul(root[t], 1.0 / static_cast<double>(count));
  return root;
}

std::vector<float> elements_of(const std::vector<Tensor>& tensors) {
  std::vector<float> elements;
  for (const Tensor& tensor : tensors)
    elements.insert(elements.end(), tensor.span<float>().begin(), tensor.span<float>().end());
  return elements;
}

// Virtual ranks 0 to 2 are those of a pair, and 3 to 5 those of a member alone. The last one of the pair has no
// samples.
TEST(ReplicaReduction, ReplicasOfUnequalSizesMakeTheSumsOfOneMember) {
  std::vector<Tensor> expected = reduced_alone(6);
  const Tensor statistic = expected.back();
  expected.pop_back();
  for (const int zero : {0, 1, 2})
    for (const bool puts : {false, true}) {
      ReplicaJob job(3, zero);
      job.step(puts);
      std::vector<float> sums(9, 0);
      for (size_t m = 0; m < 3; ++m) {
        ASSERT_EQ(job.progress[m], Progress::complete) << zero << puts << job.at[m]->reduction.missing();
        job.at[m]->reduction.take();
        const Reduced reduced = job.at[m]->reduction.take_reduced();
        EXPECT_EQ(reduced.count, 1 + 2 + 4 + 5 + 6);
        EXPECT_EQ(reduced.leaves, 5);
        EXPECT_EQ(reduced.facts.at(1).loss_sum, 1.3);
        ASSERT_EQ(reduced.batch_statistics.size(), 1u);
        EXPECT_EQ(reduced.batch_statistics[0].item(), statistic.item());
        if (zero == 0) {
          sums = elements_of(reduced.gradients);
          EXPECT_EQ(sums, elements_of(expected)) << "member " << m;
          continue;
        }
        for (const GradientShards::Bucket& bucket : reduced.shards->kept) {
          const Slice& slice = bucket.slices.at(0);
          const int64_t begins[] = {0, 2, 6};
          sums[static_cast<size_t>(begins[slice.tensor] + slice.begin)] = bucket.gradients.at(0).span<float>()[0];
        }
        std::vector<double> squares;
        for (const float x : elements_of(expected)) squares.push_back(static_cast<double>(x) * x);
        EXPECT_EQ(reduced.shards->squares, squares) << "in the order of the elements, not of the buckets";
      }
      EXPECT_EQ(sums, elements_of(expected)) << zero << puts;
    }
}

TEST(ReplicaReduction, FactsAreReportedOnce) {
  ReplicaJob job(3);
  job.step(/*puts=*/false);
  std::map<int, size_t> reported;
  for (const Message& message : job.messages)
    if (const auto* part = message.as<messages::TrailerPart>()) reported[part->member] = part->facts.size();
  EXPECT_EQ(reported, (std::map<int, size_t>{{1, 0}, {2, 3}})) << "member 0 keeps its part, and has the pair's facts";
}

TEST(ReplicaReduction, MembersOfAReplicaComputeTheSameVirtualRanksTogether) {
  ReplicaMember first(3, 0), alone(3, 2);
  EXPECT_EQ(first.gradients.todo(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ReplicaMember(3, 1).gradients.todo(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(alone.gradients.todo(), (std::vector<int>{3, 4, 5}));
  EXPECT_TRUE(first.gradients.together(0));
  EXPECT_FALSE(first.gradients.together(3)) << "it would compute this one for an audit";
  EXPECT_FALSE(alone.gradients.together(3));
  first.compute(0, /*puts=*/false);
  EXPECT_FALSE(first.gradients.together(0)) << "once it has it, only an audit asks for it";
}

TEST(ReplicaReduction, NothingIsKeptBeyondAFence) {
  for (const bool open : {false, true}) {
    ReplicaMember member(3, 0);
    member.compute(0, false);
    member.compute(1, false);
    const RankGradient gradient = member.own(2);
    if (open) {
      member.gradients.open(0, 2, 1, {Tensor::full({1}, 1)});
      EXPECT_TRUE(member.gradients.has_open());
    }
    member.sent();
    member.position.promised = 2;
    member.reduction.fence();
    member.gradients.fence();
    EXPECT_FALSE(member.gradients.has_open());
    EXPECT_TRUE(member.gradients.todo().empty()) << "nothing is computed before the next generation";
    member.gradients.add(0, 1, member.own(1), 1);
    member.position.generation->number = 2;
    EXPECT_EQ(member.gradients.todo(), (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(member.sent(), Sent{});
  }
}

// Generation 2 after the first member is gone: those that are left form a pair.
void enter_pair(ReplicaMember& member) {
  Generation next = MemberParts::generation(2, 2, 0);
  for (GenerationMember& m : next.members) ++m.id, ++m.peer;
  test::form_replicas(next, 2, 2, member.vranks);
  member.position.generation = next;
  member.position.index = next.index_of(member.position.self);
  member.position.promised = 2;
}

// The others would wait for values that nobody sends.
TEST(ReplicaReduction, AGradientThatWasBegunAloneIsOfNoUseToAPair) {
  ReplicaMember alone(3, 2), together(3, 1);
  const StepGradients::Begun begun = alone.gradients.begun(4), joint = together.gradients.begun(1);
  EXPECT_FALSE(begun.together);
  EXPECT_TRUE(joint.together);
  EXPECT_FALSE(alone.gradients.stale(4, begun) || together.gradients.stale(1, joint));
  for (ReplicaMember* member : {&alone, &together}) enter_pair(*member);
  EXPECT_TRUE(alone.gradients.together(4));
  EXPECT_TRUE(alone.gradients.stale(4, begun));
  EXPECT_TRUE(together.gradients.stale(1, joint)) << "others computed a part of it";
  EXPECT_FALSE(alone.gradients.stale(4, alone.gradients.begun(4)));
  // An audit that was begun before goes on, if nobody waits for it.
  alone.gradients.add(0, 4, alone.own(4), 1);
  EXPECT_FALSE(alone.gradients.stale(4, begun));
}

}  // namespace
}  // namespace elinvar
