// Networks cut between their segments: the same bits as in one piece (NUMERICS.md, rule 28).
#include "nn/segments.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/input_store.h"
#include "nn/stage.h"
#include "tests/models/segment_cases.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;

class SegmentedNetworks : public testing::TestWithParam<CutCase> {
 protected:
  SegmentedNetworks() : built_(GetParam()) {}
  SegmentedNetwork& network() const { return built_.segmented(); }
  MicroBatchResult whole(uint64_t seed, bool recompute = false) {
    return micro_batch_gradient(network(), built_.input, Targets(built_.target), built_.task, {.seed = seed},
                                recompute);
  }

  const CutNetwork built_;
};
INSTANTIATE_TEST_SUITE_P(, SegmentedNetworks, testing::ValuesIn(cut_cases()),
                         [](const auto& param) { return std::string(param.param.name); });

// The passes of one micro-batch through a network that is cut before these segments.
struct CutPasses {
  CutPasses(const CutNetwork& built, const std::vector<size_t>& cuts, uint64_t seed, const Recompute& recompute = {})
      : network(built.segmented()) {
    std::vector<size_t> ends = cuts;
    ends.push_back(network.segments().size());
    Boundary from{built.input.first, {.seed = seed}};
    size_t begin = 0;
    for (const size_t end : ends) {
      parts.push_back(std::make_unique<SegmentPasses>(
          network, SegmentRange{begin, end}, from, Targets(built.target), built.task,
          SegmentPasses::Options{.recompute = recompute, .inputs = built.input.further}));
      for (const Statistic& s : parts.back()->take_statistics()) statistics.push_back(s);
      if (end < network.segments().size()) from = parts.back()->to();
      begin = end;
    }
    loss = parts.back()->loss();
  }
  // Runs the backward pass of the last part that has not run it.
  void backward() {
    dy = parts.back()->backward(std::move(dy), gradients);
    parts.pop_back();
  }
  void expect_equal_to(const MicroBatchResult& whole) {
    EXPECT_EQ(loss.item(), whole.loss_sum);
    ASSERT_EQ(gradients.size(), whole.gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      ASSERT_TRUE(gradients[i].defined()) << network.parameters.list[i].name;
      EXPECT_TRUE(same_bits(gradients[i].to_contiguous(), whole.gradients[i])) << network.parameters.list[i].name;
    }
    ASSERT_EQ(statistics.size(), whole.statistics.size());
    for (size_t i = 0; i < statistics.size(); ++i) {
      EXPECT_EQ(statistics[i].running_mean, whole.statistics[i].running_mean);
      EXPECT_TRUE(same_bits(statistics[i].batch.mean, whole.statistics[i].batch.mean));
    }
  }

  SegmentedNetwork& network;
  std::vector<std::unique_ptr<SegmentPasses>> parts;
  std::vector<Statistic> statistics;
  std::vector<Tensor> gradients;
  Tensor loss, dy;
};

TEST_P(SegmentedNetworks, AreCutAnywhereWithTheSameBits) {
  EXPECT_EQ(network().segments().size(), GetParam().segments);
  const size_t count = network().segments().size();
  const test::TemporaryFolder folder;
  InputStore store({.to = Offload::To::file, .folder = folder.path()});
  for (const Recompute& recompute : {Recompute(false), Recompute(true), Recompute(true, &store)}) {
    const MicroBatchResult expected = whole(1, recompute.on);
    std::vector<std::vector<size_t>> all_cuts = {{}, {}};
    const size_t stride = GetParam().tokens ? 1 : 3;  // image networks take longer
    for (size_t cut = 1; cut < count; ++cut) {
      if (cut % stride == 0) all_cuts.push_back({cut});
      all_cuts[1].push_back(cut);
    }
    for (const std::vector<size_t>& cuts : all_cuts) {
      SCOPED_TRACE(testing::Message() << cuts.size() << " cuts, the first before segment "
                                      << (cuts.empty() ? 0 : cuts[0]) << (recompute.on ? ", recomputed" : "")
                                      << (recompute.inputs ? ", inputs in files" : ""));
      CutPasses passes(built_, cuts, 1, recompute);
      while (!passes.parts.empty()) passes.backward();
      EXPECT_FALSE(passes.dy.defined()) << "nothing comes before the input";
      passes.expect_equal_to(expected);
      if (HasFailure()) return;
    }
  }
}

// As in a pipeline, passes of several micro-batches alternate.
TEST_P(SegmentedNetworks, SeveralMicroBatchesAreUnderWay) {
  const MicroBatchResult first = whole(1), second = whole(2);
  const std::vector<size_t> cuts = {1, network().segments().size() - 1};
  CutPasses a(built_, cuts, 1), b(built_, cuts, 2);
  for (size_t part = 0; part < 3; ++part) {
    a.backward();
    b.backward();
  }
  a.expect_equal_to(first);
  b.expect_equal_to(second);
}

// The parameters that a segment lists are exactly those that get a gradient from it, but for the bias with which
// ELECTRA's generator draws tokens.
TEST_P(SegmentedNetworks, ReadTheParametersThatTheySay) {
  std::vector<size_t> cuts;
  for (size_t cut = 1; cut < network().segments().size(); ++cut) cuts.push_back(cut);
  CutPasses passes(built_, cuts, 1);
  std::set<size_t> all;
  const std::vector<Parameter>& parameters = network().parameters.list;
  for (size_t segment = network().segments().size(); segment-- > 0;) {
    std::vector<Tensor> made;
    std::vector<size_t> reached;
    passes.dy = passes.parts.back()->backward(std::move(passes.dy), made);
    passes.parts.pop_back();
    for (size_t p = 0; p < made.size(); ++p)
      if (made[p].defined()) reached.push_back(p);
    std::vector<size_t> expected = network().segments()[segment].parameters;
    if (network().segments()[segment].name == "generator")
      std::erase_if(expected, [&](size_t p) { return parameters[p].name.starts_with("generator.generator_lm_head."); });
    EXPECT_EQ(reached, expected) << network().segments()[segment].name;
    all.insert(reached.begin(), reached.end());
  }
  EXPECT_EQ(all.size(), parameters.size());
}

}  // namespace
}  // namespace elinvar
