// Recorded and replayed work: the inputs of a replay, and operations that cannot be recorded.
#include "tensor/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <thread>

#include "tensor/device_cache.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/embedding.h"
#include "tensor/ops/index.h"
#include "tensor/ops/pointwise.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/graph.h"
#endif

namespace elinvar::test {
namespace {

class Graphs : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }
  Tensor there(const std::string& name, const Shape& shape = {3, 50}) const { return normal(shape, name).to(device_); }
  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, Graphs, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Graphs);

using Given = std::span<const Tensor>;
Tensor indices(const std::string& name, int64_t limit = 20) {
  return make_inputs({{{7}, Input::Kind::index, limit}}, name)[0];
}

TEST_P(Graphs, AReplayComputesFromWhatItIsGivenAndFromWhatIsThereByThen) {
  Tensor weight = there("weight");
  Tensor y;
  Graph graph(device_, {.tensors = {there("a")}}, [&](Given given) {
    const Tensor between = mul(given[0], weight);
    y = add(exp(between), between);
  });
  for (const char* name : {"a", "b", "c"}) {
    graph.replay({.tensors = {there(name)}});
    const Tensor x = normal({3, 50}, name), product = mul(x, weight.to(Device{}));
    EXPECT_TRUE(same_bits(y.to(Device{}), add(exp(product), product))) << name;
    const Tensor changed = there(std::string("weight after ") + name);
    copy(changed, weight);  // in place
  }
}

TEST_P(Graphs, WhatIsMadeOnTheCpuIsMadeAndCheckedByEachReplay) {
  const Tensor table = there("table", {20, 8}), dy = there("dy", {7, 8});
  Tensor y, dtable;
  Graph graph(device_, {.tensors = {indices("first")}}, [&](Given given) {
    y = embedding(table, given[0]);
    dtable = embedding_backward(dy, given[0], 20);
  });
  for (const char* name : {"first", "second", "third"}) {
    const Tensor picks = indices(name);
    graph.replay({.tensors = {picks}});
    EXPECT_TRUE(same_bits(y.to(Device{}), embedding(table.to(Device{}), picks)));
    EXPECT_TRUE(same_bits(dtable.to(Device{}), embedding_backward(dy.to(Device{}), picks, 20)));
  }
  const Tensor wrong = Tensor::full({7}, 20, DType::i64);
  EXPECT_NE(message_of<UsageError>([&] { graph.replay({.tensors = {wrong}}); }).find("[embedding] index 20"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              graph.replay({.tensors = {indices("x").reshape({1, 7})}});
            }).find("input 0"),
            std::string::npos);
}

TEST_P(Graphs, RandomNumbersHaveTheKeyOfTheReplay) {
  const Rng first{.seed = 5, .step = 1, .vrank = 2};
  const auto drop_twice = [](const Tensor& x, Rng rng) {
    rng.next();
    const Tensor once = dropout(x, 0.3, rng.next());
    return dropout(once, 0.4, rng.next());
  };
  Tensor y;
  Graph graph(device_, {.tensors = {there("x")}, .rng = first}, [&](Given given) { y = drop_twice(given[0], first); });
  for (const Rng rng : {first, Rng{.seed = 5, .step = 2, .vrank = 0}, Rng{.seed = 1ull << 40, .step = 2, .vrank = 1}}) {
    graph.replay({.tensors = {there("x")}, .rng = rng});
    EXPECT_TRUE(same_bits(y.to(Device{}), drop_twice(normal({3, 50}, "x"), rng)));
  }
}

TEST_P(Graphs, WhatAMarkSaysIsCompleteIsFetchedByIt) {
  Tensor early, late;
  Mark half;
  Graph graph(device_, {.tensors = {there("x")}}, [&](Given given) {
    early = mul(given[0], 2.0);
    half = mark({&early, 1});
    late = exp(early);
  });
  EXPECT_EQ(mark({&early, 1}), nullptr) << "nothing is recorded";
  for (const char* name : {"x", "y"}) {
    graph.replay({.tensors = {there(name)}});
    Download first(early, half), second(late);
    EXPECT_TRUE(same_bits(first.wait(), mul(normal({3, 50}, name), 2.0)));
    EXPECT_TRUE(same_bits(second.wait(), exp(mul(normal({3, 50}, name), 2.0))));
  }
}

TEST_P(Graphs, ConstantsStay) {
  Tensor y;
  std::optional<Graph> graph;
  {
    const Tensor constant = normal({3, 50}, "constant");
    EXPECT_FALSE(graph_constant(constant, device_).defined());
    graph.emplace(device_, GraphInputs{.tensors = {there("x")}}, [&](Given given) {
      const Tensor sent = graph_constant(constant, device_);
      EXPECT_TRUE(sent.shares_storage(graph_constant(constant, device_)));
      y = add(given[0], sent);
    });
  }
  for (const char* name : {"x", "y"}) {
    graph->replay({.tensors = {there(name)}});
    EXPECT_TRUE(same_bits(y.to(Device{}), add(normal({3, 50}, name), normal({3, 50}, "constant"))));
  }
}

TEST_P(Graphs, WhatCannotBeRecordedIsNamed) {
  const Tensor here = normal({3, 50}, "x"), there = here.to(device_);
  const auto refusal = [&](const std::function<void(Given)>& work) {
    const std::string said = message_of<Failure>([&] { const Graph graph(device_, {.tensors = {here, there}}, work); });
    // The thread continues to work after the error.
    EXPECT_TRUE(same_bits(add(there, 1.0).to(Device{}), add(here, 1.0)));
    return said;
  };
  EXPECT_EQ(refusal([](Given given) { given[1].to(Device{}); }), "[graph] a copy to the host cannot be recorded");
  EXPECT_EQ(refusal([](Given given) { Download(Tensor(given[1])).wait(); }),
            "[graph] a copy to the host cannot be recorded");
  EXPECT_NE(refusal([&](Given given) { Upload(given[0], device_); }).find("host"), std::string::npos);
  EXPECT_EQ(refusal([&](Given given) { add(given[0], 1.0).to(device_); }),
            "[graph] what the CPU makes of anything but inputs cannot be recorded");
  EXPECT_EQ(refusal([](Given) { checked_index("test", Tensor::zeros({2}, DType::i64), 5); }),
            "[graph] what the CPU makes of anything but inputs cannot be recorded");
  EXPECT_EQ(refusal([](Given given) { dropout(given[1], 0.5, {.step = 7}); }),
            "[graph] a random number of another key than the work's cannot be recorded");
  EXPECT_EQ(refusal([&](Given) {
              on(device_, [](auto& stream) {
                if constexpr (!std::is_same_v<decltype(stream), CpuStream&>) stream.synchronize();
              });
            }),
            "[graph] waiting for the device cannot be recorded");
  EXPECT_NE(message_of<UsageError>([&] {
              Graph(device_, {}, [&](Given) { Graph(device_, {}, [](Given) {}); });
            }).find("cannot record a graph"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              Graph(device_, {.tensors = {here, here}}, [](Given) {});
            }).find("one tensor"),
            std::string::npos);
}

// Another thread that is short of memory meanwhile may not wait for the whole device, which would end the recording.
TEST_P(Graphs, AnotherThreadMayGiveBackMemoryWhileAGraphIsRecorded) {
  Tensor y;
  Graph graph(device_, {.tensors = {there("x")}}, [&](Given given) {
    y = add(given[0], 1.0);
    std::jthread([&] {
      on(device_, [](auto& stream) {
        if constexpr (requires { stream.give_back(); }) stream.give_back();
      });
    });
    y = mul(y, 2.0);
  });
  graph.replay({.tensors = {there("x")}});
  EXPECT_TRUE(same_bits(y.to(Device{}), mul(add(normal({3, 50}, "x"), 1.0), 2.0)));
}

template <class B>
DeviceCache& of_graphs(GpuStream<B>& stream) {
  return recording_stream<B>(stream.index()).cache();
}

TEST_P(Graphs, GraphsShareMemoryAndTheLastOneGivesItBack) {
  const auto statistics = [&] {
    AllocatorStats found;
    on(device_, [&](auto& stream) {
      if constexpr (requires { stream.recording(); }) found = of_graphs(stream).stats();
    });
    return found;
  };
  const Shape large{1 << 18};
  Tensor y1, y2;
  const auto work = [](Tensor& y) { return [&y](Given given) { y = mul(add(mul(given[0], 3.0), 1.0), 0.5); }; };
  {
    Graph first(device_, {.tensors = {there("x", large)}}, work(y1));
    const AllocatorStats one = statistics();
    Graph second(device_, {.tensors = {there("x", large)}}, work(y2));
    const AllocatorStats two = statistics();
    EXPECT_EQ(two.in_use, 2 * one.in_use) << "what comes out";
    EXPECT_LT(two.peak_in_use, 2 * one.peak_in_use) << "what lies between";
    for (const char* name : {"a", "b", "c"}) {
      const auto expected = [&](const char* of) { return mul(add(mul(normal(large, of), 3.0), 1.0), 0.5); };
      first.replay({.tensors = {there(name, large)}});
      EXPECT_TRUE(same_bits(y1.to(Device{}), expected(name)));
      second.replay({.tensors = {there("other", large)}});
      EXPECT_TRUE(same_bits(y2.to(Device{}), expected("other")));
    }
    EXPECT_EQ(statistics().system_calls, two.system_calls);
    y1 = y2 = {};
  }
  EXPECT_EQ(statistics().in_use, 0);
  EXPECT_EQ(statistics().cached, 0);
}

#ifdef ELINVAR_EMULATION

const Device kEmulated{DeviceKind::emulated};

TEST(EmulatedGraphs, AReplayIsOneLaunch) {
  Tensor y;
  Graph graph(kEmulated, {}, [&](Given) {
    y = Tensor::zeros({5}, DType::f32, kEmulated);
    for (int i = 0; i < 10; ++i) y = add(y, 1.0);
  });
  const int64_t before = emulation::launches();
  graph.replay({});
  EXPECT_EQ(emulation::launches(), before + 1);
  EXPECT_TRUE(same_bits(y.to(Device{}), Tensor::full({5}, 10.0)));
}

// Values that a replay leaves in memory that no tensor holds are gone before the next replay.
TEST(EmulatedGraphs, WhatAReplayLeavesBehindIsNoInput) {
  Tensor y;
  const void* left = nullptr;
  Graph graph(kEmulated, {}, [&](Given) {
    Tensor unwritten = Tensor::empty({4}, DType::f32, kEmulated);
    y = add(unwritten, 1.0);
    left = unwritten.raw();
    fill(unwritten, 3.0);
  });
  for (int i = 0; i < 2; ++i) {
    graph.replay({});
    EXPECT_TRUE(std::isnan(y.to(Device{}).data<float>()[0])) << i;
    EXPECT_EQ(*static_cast<const float*>(left), 3.0f);
  }
}

void read_what_is_gone() {
  Tensor y, weight = Tensor::zeros({1000}, DType::f32, kEmulated);
  Graph graph(kEmulated, {}, [&](Given) { y = add(weight, 1.0); });
  graph.replay({});
  weight = Tensor::zeros({1000}, DType::f32, kEmulated);
  graph.replay({});
}

void write_after_a_mark() {
  Tensor y;
  Mark early;
  Graph graph(kEmulated, {}, [&](Given) {
    y = Tensor::zeros({10}, DType::f32, kEmulated);
    early = mark({&y, 1});
    fill(y, 1.0);
  });
  graph.replay({});
  Download(y, early).wait();
}

void replay_over_a_download() {
  Tensor y;
  const auto input = [](double value) {
    return GraphInputs{.tensors = {Tensor::full({10}, value, DType::f32, kEmulated)}};
  };
  Graph graph(kEmulated, input(1.0), [&](Given given) { y = add(given[0], 1.0); });
  graph.replay(input(1.0));
  Download on_its_way(y);
  graph.replay(input(2.0));
  on_its_way.wait();
}

TEST(EmulatedGraphsDeathTest, WhatACardWouldGetWrongEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(read_what_is_gone(), "was given memory that is gone");
  EXPECT_DEATH(write_after_a_mark(), "a mark says is complete");
  EXPECT_DEATH(replay_over_a_download(), "on its way");
}

#endif

}  // namespace
}  // namespace elinvar::test
