// The order of work on the interpreter: what CUDA's streams, events and graphs promise holds under each schedule, and a
// wait that is missing shows under some.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/ptx/runtime/queue.h"

namespace elinvar::ptx {
namespace {

using emulation::Schedule;

constexpr int kNothing = -1;  // fresh memory

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  return stream;
}
cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  return event;
}

class PtxQueues : public ::testing::Test {
 protected:
  void SetUp() override {
    void* block = nullptr;
    ASSERT_EQ(cudaMalloc(&block, kRoom * sizeof(int)), cudaSuccess);
    device_ = static_cast<int*>(block);
    ASSERT_EQ(cudaHostAlloc(&block, kRoom * sizeof(int), cudaHostAllocPortable), cudaSuccess);
    locked_ = static_cast<int*>(block);
  }
  void TearDown() override {
    use("late");
    cudaFree(device_);
    cudaFreeHost(locked_);
    for (const cudaStream_t stream : {a_, b_}) cudaStreamDestroy(stream);
    cudaEventDestroy(event_);
  }

  static void use(const std::string& schedule) {
    Scheduler::instance().finish();
    Scheduler::instance().use(Schedule::parse(schedule));
  }

  // Work that has a place to read from (may be null) and one to write to, as a kernel has.
  static void add(cudaStream_t stream, const int* from, int number, int* to) {
    perform(stream, [=] { *to = (from == nullptr ? 0 : *from) + number; });
  }
  void to_host(cudaStream_t stream, int* to, const int* from) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyDeviceToHost, stream), cudaSuccess);
  }
  void to_device(cudaStream_t stream, int* to, const int* from) {
    EXPECT_EQ(cudaMemcpyAsync(to, from, sizeof(int), cudaMemcpyHostToDevice, stream), cudaSuccess);
  }
  void order(cudaStream_t first, cudaStream_t next) {
    EXPECT_EQ(cudaEventRecord(event_, first), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(next, event_, 0), cudaSuccess);
  }
  int on_device(int i) {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    return device_[i];
  }

  // The results of f under the schedules "eager", "late" and some seeds, each on fresh memory.
  std::set<int> results(const std::function<int()>& f) {
    std::set<int> found;
    for (int k = -2; k < 20; ++k) {
      use(k == -2 ? "eager" : k == -1 ? "late" : std::to_string(k));
      std::fill_n(device_, kRoom, kNothing);
      std::fill_n(locked_, kRoom, kNothing);
      found.insert(f());
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    return found;
  }

  static constexpr size_t kRoom = 16;
  int* device_ = nullptr;
  int* locked_ = nullptr;
  cudaStream_t a_ = new_stream(), b_ = new_stream();
  cudaEvent_t event_ = new_event();
};

TEST_F(PtxQueues, LateWorkRunsWhenItIsWaitedForAndEagerWorkAtOnce) {
  for (const bool eager : {false, true}) {
    use(eager ? "eager" : "late");
    std::fill_n(device_, kRoom, kNothing);
    add(a_, nullptr, 1, device_);
    add(b_, nullptr, 2, device_ + 1);
    EXPECT_EQ(device_[0], eager ? 1 : kNothing);
    cudaStreamSynchronize(a_);
    EXPECT_EQ(device_[0], 1);
    EXPECT_EQ(device_[1], eager ? 2 : kNothing) << "nobody waited for the other stream";
    EXPECT_EQ(on_device(1), 2);
  }
}

TEST_F(PtxQueues, ACopyThatDoesNotWaitForAnotherStreamReadsOldBytes) {
  const auto copied = [&](bool waits) {
    return results([&, waits] {
      add(a_, nullptr, 7, device_);
      if (waits) order(a_, b_);
      to_host(b_, locked_, device_);
      cudaStreamSynchronize(b_);
      return locked_[0];
    });
  };
  EXPECT_EQ(copied(true), (std::set{7}));
  EXPECT_EQ(copied(false), (std::set{7, kNothing}));
}

TEST_F(PtxQueues, AWriterThatDoesNotWaitForAReaderOverwritesWhatItReads) {
  const auto copied = [&](bool waits) {
    return results([&, waits] {
      device_[0] = 1;
      to_host(b_, locked_, device_);
      if (waits) order(b_, a_);
      add(a_, nullptr, 2, device_);
      cudaStreamSynchronize(a_);
      cudaStreamSynchronize(b_);
      return locked_[0];
    });
  };
  EXPECT_EQ(copied(true), (std::set{1}));
  EXPECT_EQ(copied(false), (std::set{1, 2}));
}

TEST_F(PtxQueues, PageLockedMemoryIsReadLateAndOtherMemoryAtOnce) {
  const auto sent = [&](int* from) {
    return results([&, from] {
      *from = 1;
      to_device(a_, device_, from);
      *from = 2;
      return on_device(0);
    });
  };
  int pageable = 0;
  EXPECT_EQ(sent(locked_), (std::set{1, 2}));
  EXPECT_EQ(sent(&pageable), (std::set{1}));
}

TEST_F(PtxQueues, PageLockedMemoryIsWrittenLateAndOtherMemoryBeforeTheCallReturns) {
  const auto fetched = [&](int* to) {
    return results([&, to] {
      *to = kNothing;
      add(a_, nullptr, 3, device_);
      to_host(a_, to, device_);
      return *to;
    });
  };
  int pageable = 0;
  EXPECT_EQ(fetched(locked_), (std::set{3, kNothing}));
  EXPECT_EQ(fetched(&pageable), (std::set{3}));
}

TEST_F(PtxQueues, AnEventIsAsItWasWhenItWasRecorded) {
  use("late");
  add(a_, nullptr, 1, device_);
  cudaEventRecord(event_, a_);
  cudaStreamWaitEvent(b_, event_, 0);
  add(b_, device_, 10, device_ + 1);
  add(a_, nullptr, 2, device_ + 2);
  cudaEventRecord(event_, a_);  // the wait is for the first record
  cudaEventDestroy(std::exchange(event_, new_event()));
  cudaStreamSynchronize(b_);
  EXPECT_EQ(device_[1], 11);
  EXPECT_EQ(device_[2], kNothing);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess) << "a new event";
}

TEST_F(PtxQueues, AnEventThatIsAskedForOccursInTheEnd) {
  for (const char* schedule : {"late", "1", "2", "3"}) {
    use(schedule);
    device_[0] = kNothing;
    add(a_, nullptr, 1, device_);
    cudaEventRecord(event_, a_);
    int questions = 1;
    while (cudaEventQuery(event_) == cudaErrorNotReady) ++questions;
    EXPECT_EQ(device_[0], 1);
    EXPECT_LT(questions, 20);
    EXPECT_TRUE(questions == 2 || std::string(schedule) != "late") << questions;
  }
  static_cast<void>(cudaGetLastError());
}

TEST_F(PtxQueues, StreamsThatAreDestroyedFinishTheirWork) {
  use("late");
  add(b_, nullptr, 4, device_);
  cudaStreamDestroy(std::exchange(b_, new_stream()));
  EXPECT_EQ(on_device(0), 4);
}

// Records a graph in which stream a forks to b and joins it again.
cudaGraphExec_t two_streams(cudaStream_t a, cudaStream_t b,
                            const std::function<void(cudaStream_t, cudaStream_t)>& order,
                            const std::function<void()>& first, const std::function<void()>& on_a,
                            const std::function<void()>& on_b, const std::function<void()>& last) {
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeRelaxed), cudaSuccess);
  first();
  order(a, b);
  on_a();
  on_b();
  order(b, a);
  last();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  return ready;
}

TEST_F(PtxQueues, AGraphOfTwoStreamsKeepsTheirEventsAndNothingElse) {
  const auto replayed = [&](bool crosses) {
    const cudaGraphExec_t graph = two_streams(
        a_, b_, [&](cudaStream_t first, cudaStream_t next) { order(first, next); },
        [&] { add(a_, device_ + 9, 1, device_); }, [&] { add(a_, device_, 10, device_ + 1); },
        [&] { add(b_, crosses ? device_ + 1 : device_, 100, device_ + 2); },
        [&] { perform(a_, [d = device_] { d[3] = d[1] + d[2]; }); });
    EXPECT_EQ(device_[3], kNothing) << "recorded work does not run";
    const std::set<int> found = results([&] {
      device_[9] = 4;
      cudaGraphLaunch(graph, a_);
      to_host(a_, locked_, device_ + 3);
      cudaStreamSynchronize(a_);
      return locked_[0];
    });
    cudaGraphExecDestroy(graph);
    std::fill_n(device_, kRoom, kNothing);
    return found;
  };
  EXPECT_EQ(replayed(false), (std::set{15 + 105}));
  EXPECT_EQ(replayed(true), (std::set{15 + 115, 15 + 99}));
}

TEST_F(PtxQueues, LaunchesOfAGraphAreInTheOrderOfTheirStreamAndOneAfterAnother) {
  cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed);
  add(a_, device_, 1, device_);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaStreamEndCapture(a_, &graph);
  cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  EXPECT_EQ(results([&] {
              add(a_, nullptr, 5, device_);
              cudaGraphLaunch(ready, a_);
              cudaGraphLaunch(ready, b_);
              add(b_, device_, 10, device_ + 1);
              return on_device(1);
            }),
            (std::set{17}));
  use("late");
  device_[0] = 1;
  cudaGraphLaunch(ready, a_);
  cudaGraphExecDestroy(ready);
  EXPECT_EQ(on_device(0), 2) << "a launch outlives the graph";
}

TEST_F(PtxQueues, AnExternalEventOccursAmidALaunchOfItsGraph) {
  cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed);
  add(a_, device_ + 9, 1, device_);
  cudaEventRecordWithFlags(event_, a_, cudaEventRecordExternal);
  add(a_, device_, 1, device_ + 1);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaStreamEndCapture(a_, &graph);
  cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  for (const int input : {3, 5}) {
    use("late");
    device_[1] = kNothing;
    device_[9] = input;
    cudaGraphLaunch(ready, a_);
    cudaStreamWaitEvent(b_, event_, 0);
    to_host(b_, locked_, device_);
    cudaStreamSynchronize(b_);
    EXPECT_EQ(locked_[0], input + 1);
    EXPECT_EQ(device_[1], kNothing) << "the rest of the graph";
    EXPECT_EQ(on_device(1), input + 2);
  }
  cudaGraphExecDestroy(ready);
}

TEST_F(PtxQueues, EachThreadMayLaunchAndWait) {
  for (const char* schedule : {"eager", "late", "1", "2"}) {
    use(schedule);
    std::fill_n(device_, kRoom, 0);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const cudaStream_t own = new_stream(), other = new_stream();
        const cudaEvent_t event = new_event();
        int* const sum = device_ + t;
        for (int i = 0; i < 200; ++i) {
          const cudaStream_t first = i % 2 == 0 ? own : other, next = i % 2 == 0 ? other : own;
          add(first, sum, 1, sum);
          cudaEventRecord(event, first);
          cudaStreamWaitEvent(next, event, 0);
          if (i % 20 == 0) {
            cudaStreamSynchronize(next);
            EXPECT_EQ(*sum, i + 1);
          }
        }
        cudaStreamSynchronize(own);
        cudaStreamDestroy(own);
        cudaStreamDestroy(other);
        cudaEventDestroy(event);
      });
    threads.clear();
    for (int t = 0; t < 4; ++t) EXPECT_EQ(device_[t], 200) << schedule;
  }
}

using PtxQueuesDeathTest = PtxQueues;

TEST_F(PtxQueuesDeathTest, WhatCudaRefusesOrLeavesOpenEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [&] {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(a_, &graph);
  };
  const auto begin = [&] { cudaStreamBeginCapture(a_, cudaStreamCaptureModeRelaxed); };
  EXPECT_DEATH((begin(), add(a_, nullptr, 1, device_), order(a_, b_), add(b_, nullptr, 1, device_), end()),
               "does not wait for all of its streams");
  EXPECT_DEATH((begin(), cudaStreamSynchronize(a_)), "waits for a stream that is recorded");
  EXPECT_DEATH((begin(), cudaDeviceSynchronize()), "waits for a device while a stream of it is recorded");
  EXPECT_DEATH((begin(), order(b_, a_)), "waits for work that is not recorded");
  EXPECT_DEATH((begin(), cudaEventRecord(event_, a_), cudaEventQuery(event_)), "event of a graph");
  EXPECT_DEATH(add(nullptr, nullptr, 1, device_), "default stream");
  EXPECT_DEATH((use("late"), to_host(a_, locked_, device_), cudaFreeHost(locked_), cudaStreamSynchronize(a_)),
               "a copy to memory that is not there");
}

}  // namespace
}  // namespace elinvar::ptx
