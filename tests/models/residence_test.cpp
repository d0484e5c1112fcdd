// Passes of networks whose parameters are in memory only while they are used (nn/residence.h): the same bits as with
// all of them there, with those of at most two segments at a time.
#include "nn/residence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "nn/input_store.h"
#include "nn/stage.h"
#include "tensor/allocator.h"
#include "tensor/ops/copy.h"
#include "tensor/stream.h"
#include "tests/models/segment_cases.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;

std::unique_ptr<CutNetwork> outline_of(const CutCase& c) {
  const OutlineScope no_values;
  return std::make_unique<CutNetwork>(c);
}

// Has the values of another network's parameters. What is requested is NaN until it is awaited.
class OtherNetwork : public ParameterSource {
 public:
  OtherNetwork(const SegmentedNetwork& of, const Network& from) : network_(of) {
    for (const Parameter& p : from.parameters.list) values_.push_back(p.var.value());
    std::vector<std::set<size_t>> read;
    for (const Segment& segment : of.segments())
      read.emplace_back(segment.parameters.begin(), segment.parameters.end());
    for (size_t i = 0; i < read.size(); ++i) {
      std::set<size_t> two = read[i];
      if (i > 0) two.insert(read[i - 1].begin(), read[i - 1].end());
      int64_t bytes = 0;
      for (const size_t p : two) bytes += values_[p].bytes();
      bytes_of_two = std::max(bytes_of_two, bytes);
    }
  }
  void request(std::span<const size_t> parameters) override {
    for (const size_t p : parameters) {
      EXPECT_TRUE(requested_.insert(p).second) << p;
      fill(tensor(p), std::numeric_limits<double>::quiet_NaN());
      ++requests;
    }
    most_bytes = std::max(most_bytes, resident_bytes());
  }
  void wait(std::span<const size_t> parameters) override {
    for (const size_t p : parameters) {
      EXPECT_EQ(requested_.erase(p), 1u) << p;
      copy(values_[p], tensor(p));
    }
  }
  void cancel(std::span<const size_t> parameters) override {
    for (const size_t p : parameters) EXPECT_EQ(requested_.erase(p), 1u) << p;
  }
  int64_t resident_bytes() const {
    int64_t bytes = 0;
    for (const Parameter& p : network_.parameters.list) bytes += p.var.value().resident() ? p.var.value().bytes() : 0;
    return bytes;
  }

  int64_t bytes_of_two = 0;  // of the largest two adjacent segments
  int64_t most_bytes = 0;
  int requests = 0;

 private:
  Tensor& tensor(size_t p) const { return Var(network_.parameters.list[p].var).mutable_value(); }

  const SegmentedNetwork& network_;
  std::vector<Tensor> values_;
  std::set<size_t> requested_;
};

void expect_equal(const MicroBatchResult& found, const MicroBatchResult& expected, const Network& network) {
  EXPECT_EQ(found.loss_sum, expected.loss_sum);
  EXPECT_EQ(found.count, expected.count);
  EXPECT_EQ(found.correct, expected.correct);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < found.gradients.size(); ++i)
    EXPECT_TRUE(same_bits(found.gradients[i], expected.gradients[i])) << network.parameters.list[i].name;
  ASSERT_EQ(found.batch_statistics.size(), expected.batch_statistics.size());
  for (size_t i = 0; i < found.batch_statistics.size(); ++i)
    EXPECT_TRUE(same_bits(found.batch_statistics[i], expected.batch_statistics[i])) << i;
}

class ParameterResidence : public testing::TestWithParam<CutCase> {
 protected:
  ParameterResidence()
      : whole_(GetParam()),
        outline_(outline_of(GetParam())),
        source_(network(), *whole_.network),
        residence_(network(), source_) {}
  SegmentedNetwork& network() const { return outline_->segmented(); }
  // At the end of all passes.
  void expect_little_memory() const {
    EXPECT_LE(source_.most_bytes, source_.bytes_of_two);
    EXPECT_EQ(source_.resident_bytes(), 0);
  }

  const CutNetwork whole_;                     // has all values
  const std::unique_ptr<CutNetwork> outline_;  // has none of its own
  OtherNetwork source_;
  Residence residence_;
};
INSTANTIATE_TEST_SUITE_P(, ParameterResidence, testing::ValuesIn(cut_cases()),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(ParameterResidence, GradientsHaveTheSameBits) {
  const test::TemporaryFolder folder;
  InputStore store({.to = Offload::To::file, .folder = folder.path()});
  for (const Recompute& recompute : {Recompute(false), Recompute(true), Recompute(true, &store)}) {
    SCOPED_TRACE(testing::Message() << recompute.on << (recompute.inputs != nullptr));
    const MicroBatchResult expected = micro_batch_gradient(*whole_.network, whole_.input, Targets(whole_.target),
                                                           whole_.task, {.seed = 1}, recompute.on);
    source_.requests = 0;
    const MicroBatchResult found = micro_batch_gradient(network(), whole_.input, Targets(whole_.target), whole_.task,
                                                        {.seed = 1}, recompute, {}, local_shards(), &residence_);
    expect_equal(found, expected, network());
    expect_little_memory();
    // Each segment's parameters come for both passes; those of the head, whose passes are adjacent, once.
    size_t uses = 0;
    for (const Segment& segment : network().segments()) uses += 2 * segment.parameters.size();
    EXPECT_EQ(source_.requests, uses - network().segments().back().parameters.size());
  }
}

TEST_P(ParameterResidence, GradientsLeaveWhileTheirSegmentIsThere) {
  const MicroBatchResult expected =
      micro_batch_gradient(*whole_.network, whole_.input, Targets(whole_.target), whole_.task, {.seed = 1});
  std::vector<size_t> left;
  const MicroBatchProgress progress = {.gradient = [&](size_t p, const Tensor& gradient, const Mark&) {
    EXPECT_TRUE(network().parameters.list[p].var.value().resident()) << network().parameters.list[p].name;
    EXPECT_TRUE(same_bits(gradient, expected.gradients[p])) << network().parameters.list[p].name;
    left.push_back(p);
  }};
  micro_batch_gradient(network(), whole_.input, Targets(whole_.target), whole_.task, {.seed = 1}, false, progress,
                       local_shards(), &residence_);
  EXPECT_EQ(std::set(left.begin(), left.end()).size(), network().parameters.list.size());
  EXPECT_EQ(left.size(), network().parameters.list.size());
}

// Two stages of a pipeline, each of which may have several segments.
TEST_P(ParameterResidence, StagesHaveTheSameBits) {
  const size_t count = network().segments().size(), cut = count / 2;
  const MicroBatchResult expected =
      micro_batch_gradient(*whole_.network, whole_.input, Targets(whole_.target), whole_.task, {.seed = 1});
  const SegmentPasses::Options options{.residence = &residence_, .inputs = whole_.input.further};
  SegmentPasses first(network(), {0, cut}, {whole_.input.first, {.seed = 1}}, Targets(whole_.target), whole_.task,
                      options),
      second(network(), {cut, count}, first.to(), Targets(whole_.target), whole_.task, options);
  EXPECT_EQ(second.loss().item(), expected.loss_sum);
  std::vector<Tensor> gradients;
  Tensor dy = second.backward({}, gradients);
  dy = first.backward(std::move(dy), gradients);
  EXPECT_FALSE(dy.defined());
  for (size_t i = 0; i < gradients.size(); ++i)
    EXPECT_TRUE(same_bits(gradients[i].to_contiguous(), expected.gradients[i])) << network().parameters.list[i].name;
  expect_little_memory();
}

TEST_P(ParameterResidence, PredictionsHaveTheSameBits) {
  const std::vector<Inputs> views = {whole_.input, {whole_.input.first.clone(), whole_.input.further}};
  EXPECT_TRUE(same_bits(predict(network(), views, local_shards(), &residence_), predict(*whole_.network, views)));
  expect_little_memory();
}

TEST_P(ParameterResidence, AnOutlineKnowsItsInitialValues) {
  for (size_t i = 0; i < network().parameters.list.size(); ++i) {
    const Tensor& expected = whole_.network->parameters.list[i].var.value();
    Tensor values = Tensor::empty(expected.shape());
    network().parameters.list[i].initialise(values);
    EXPECT_TRUE(same_bits(values, expected)) << network().parameters.list[i].name;
  }
}

// Cuts of the tape keep nothing that whole passes do not: a step takes their memory and that of two segments.
TEST(ParameterResidenceMemory, IsThatOfActivationsAndTwoSegments) {
  const CutCase gpt = {.name = "gpt",
                       .kind = "gpt",
                       .settings = {{"layers", int64_t{6}}, {"heads", int64_t{4}}, {"channels", int64_t{128}}},
                       .tokens = true};
  const CutNetwork whole(gpt);
  const auto outline = outline_of(gpt);
  OtherNetwork source(outline->segmented(), *whole.network);
  Residence residence(outline->segmented(), source);
  CpuStream one(1);  // each thread has packing buffers of its own
  const StreamScope scope(one);
  HostAllocator& allocator = HostAllocator::instance();
  const MicroBatchProgress drop = {.gradient = [](size_t, const Tensor&, const Mark&) {}};
  for (const bool recompute : {false, true}) {
    const auto peak = [&](Network& network, Residence* with) {
      allocator.reset_peak();
      const int64_t before = allocator.stats().in_use;
      micro_batch_gradient(network, whole.input, Targets(whole.target), whole.task, {.seed = 1}, recompute, drop,
                           local_shards(), with);
      return allocator.stats().peak_in_use - before;
    };
    const int64_t all_there = peak(*whole.network, nullptr), by_segment = peak(*outline->network, &residence);
    EXPECT_LE(by_segment, all_there + source.bytes_of_two * 21 / 20) << "recompute " << recompute;
    EXPECT_GT(outline->network->parameters.count() * 4, 2 * source.bytes_of_two);
  }
}

// A process that computes two of three virtual shards never asks for the third.
TEST(ParameterResidenceOfAGroup, HasTheGroupsShardsAlone) {
  const std::vector<CutCase> cases = cut_cases();
  const CutCase& sharded =
      *std::ranges::find_if(cases, [](const CutCase& c) { return std::string(c.name) == "gpt_sharded"; });
  const CutNetwork whole(sharded);
  const auto outline = outline_of(sharded);
  SegmentedNetwork& network = outline->segmented();
  OtherNetwork source(network, *whole.network);
  PartialShards first({0, 2}), all_but_last({0, 2});
  Residence residence(network, source, first);
  const MicroBatchResult expected = micro_batch_gradient(*whole.network, whole.input, Targets(whole.target), whole.task,
                                                         {.seed = 1}, false, {}, all_but_last),
                         found = micro_batch_gradient(network, whole.input, Targets(whole.target), whole.task,
                                                      {.seed = 1}, false, {}, first, &residence);
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    ASSERT_EQ(found.gradients[i].defined(), expected.gradients[i].defined()) << i;
    if (!found.gradients[i].defined()) continue;
    EXPECT_TRUE(same_bits(found.gradients[i], expected.gradients[i])) << i;
  }
  EXPECT_LT(source.most_bytes, source.bytes_of_two);
}

}  // namespace
}  // namespace elinvar
