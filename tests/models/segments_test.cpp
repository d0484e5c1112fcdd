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
  SegmentedNetworks() : built_(GetParam()), input_(built_.input), target_(built_.target) {}
  SegmentedNetwork& network() { return built_.segmented(); }
  MicroBatchResult whole(uint64_t seed, bool recompute = false) {
    return micro_batch_gradient(network(), input_, Targets(target_), {}, {.seed = seed}, recompute);
  }

  const CutNetwork built_;
  const Inputs input_;
  const Tensor target_;
};
INSTANTIATE_TEST_SUITE_P(, SegmentedNetworks, testing::ValuesIn(cut_cases()),
                         [](const auto& param) { return std::string(param.param.name); });

// The passes of one micro-batch through a network that is cut before these segments.
struct CutPasses {
  CutPasses(SegmentedNetwork& of, const std::vector<size_t>& cuts, const Inputs& input, const Tensor& target,
            uint64_t seed, const Recompute& recompute = {})
      : network(of) {
    std::vector<size_t> ends = cuts;
    ends.push_back(of.segments().size());
    Boundary from{input.first, {.seed = seed}};
    size_t begin = 0;
    for (const size_t end : ends) {
      parts.push_back(
          std::make_unique<SegmentPasses>(of, SegmentRange{begin, end}, from, Targets(target), CrossEntropyOptions{},
                                          SegmentPasses::Options{.recompute = recompute, .inputs = input.further}));
      for (const Statistic& s : parts.back()->take_statistics()) statistics.push_back(s);
      if (end < of.segments().size()) from = parts.back()->to();
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
      CutPasses passes(network(), cuts, input_, target_, 1, recompute);
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
  CutPasses a(network(), cuts, input_, target_, 1), b(network(), cuts, input_, target_, 2);
  for (size_t part = 0; part < 3; ++part) {
    a.backward();
    b.backward();
  }
  a.expect_equal_to(first);
  b.expect_equal_to(second);
}

// The parameters that a segment lists are exactly those that get a gradient from it.
TEST_P(SegmentedNetworks, ReadTheParametersThatTheySay) {
  std::vector<size_t> cuts;
  for (size_t cut = 1; cut < network().segments().size(); ++cut) cuts.push_back(cut);
  CutPasses passes(network(), cuts, input_, target_, 1);
  std::set<size_t> all;
  for (size_t segment = network().segments().size(); segment-- > 0;) {
    std::vector<Tensor> none;
    std::vector<size_t> reached;
    passes.dy = passes.parts.back()->backward(std::move(passes.dy), none, [&](size_t p) { reached.push_back(p); });
    passes.parts.pop_back();
    std::sort(reached.begin(), reached.end());
    EXPECT_EQ(reached, network().segments()[segment].parameters) << network().segments()[segment].name;
    all.insert(reached.begin(), reached.end());
  }
  EXPECT_EQ(all.size(), network().parameters.list.size());
}

}  // namespace
}  // namespace elinvar
