// The order of samples: the permutation and the loader.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "data/loader.h"
#include "data/permutation.h"
#include "tensor/base/check.h"
#include "tests/data/endless.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

TEST(Permutation, IsABijectionOfEverySize) {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 100, 127, 128, 129, 1000, 50000}) {
    const Permutation p(n, 3, 1);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t x = p(i);
      ASSERT_TRUE(x >= 0 && x < n) << n;
      ASSERT_FALSE(seen[static_cast<size_t>(x)]) << n;
      seen[static_cast<size_t>(x)] = true;
    }
  }
}

TEST(Permutation, LargeSetsCostNothing) {
  const int64_t n = (int64_t{1} << 50) + 1;
  const Permutation p(n, 3, 1);
  for (int64_t i : {int64_t{0}, n / 2, n - 1}) EXPECT_TRUE(p(i) >= 0 && p(i) < n);
  EXPECT_NE(p(0), p(1));
}

TEST(Permutation, MixesAndDependsOnSeedAndStream) {
  const int64_t n = 10000;
  const Permutation p(n, 3, 1), other_seed(n, 4, 1), other_stream(n, 3, 2);
  int64_t in_place = 0, ascents = 0, same_seed = 0, same_stream = 0;
  for (int64_t i = 0; i < n; ++i) {
    in_place += p(i) == i;
    same_seed += p(i) == other_seed(i);
    same_stream += p(i) == other_stream(i);
    if (i > 0) ascents += p(i) > p(i - 1);
  }
  EXPECT_LE(in_place, 10);
  EXPECT_LE(same_seed, 10);
  EXPECT_LE(same_stream, 10);
  EXPECT_NEAR(static_cast<double>(ascents), 5000, 150);  // 5 standard deviations, sqrt(n / 12) each
}

// A small set has few permutations: all of them occur about equally often.
TEST(Permutation, ReachesEveryOrderOfThree) {
  std::map<std::vector<int64_t>, int> times;
  for (uint64_t stream = 0; stream < 6000; ++stream) {
    const Permutation p(3, 9, stream);
    ++times[{p(0), p(1), p(2)}];
  }
  EXPECT_EQ(times.size(), 6u);
  for (const auto& [order, count] : times) EXPECT_NEAR(count, 1000, 200);  // 7 standard deviations, 29 each
}

// Resumed and repeated runs depend on these values.
TEST(Permutation, GoldenValues) {
  const Permutation p(50000, 1, 0);
  EXPECT_EQ((std::vector<int64_t>{p(0), p(1), p(2), p(49999)}), (std::vector<int64_t>{11154, 2960, 43274, 9625}));
}

// Samples that are their own numbers; a chosen reader can be made to fail.
class Numbers final : public Dataset {
 public:
  explicit Numbers(int64_t size, int64_t bad = -1) : size_(size), bad_(bad) {}
  int64_t size() const override { return size_; }
  SampleFormat format() const override { return {.inputs = {{Shape{2}, DType::f32}}, .target = {Shape{}, DType::i64}}; }
  int64_t classes() const override { return size_; }
  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    if (index == bad_) fail("sample {} is damaged", index);
    const float values[2] = {static_cast<float>(draw.epoch), draw.augment ? static_cast<float>(draw.seed) : -1.0f};
    std::memcpy(sample.inputs[0], values, sizeof values);
    *sample.target<int64_t>() = index;
    ++reads;
  }
  void describe(Hasher& hasher) const override { hasher.add_integer(size_); }
  mutable std::atomic<int64_t> reads{0};

 private:
  int64_t size_, bad_;
};

TEST(Loader, ServesEverySampleExactlyOnceAnEpoch) {
  for (int64_t n : {1, 7, 64, 101})
    for (int64_t batch : {1, 8, 13, 200})
      for (int vranks : {1, 2, 3, 8}) {
        if (vranks > batch) continue;
        Loader loader(std::make_shared<Numbers>(n), {.seed = 5, .global_batch = batch, .virtual_ranks = vranks});
        ASSERT_EQ(loader.steps_per_epoch(), (n + batch - 1) / batch);
        std::vector<std::vector<int64_t>> orders;
        for (int64_t epoch = 0; epoch < 3; ++epoch) {
          std::vector<int64_t> order;
          for (int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
            const int64_t step = epoch * loader.steps_per_epoch() + s;
            int64_t in_step = 0, least = n, most = 0;
            for (int v = 0; v < vranks; ++v) {
              const Batch b = loader.batch(step, v);
              ASSERT_EQ(b.input.shape(), (Shape{b.samples, 2}));
              ASSERT_EQ(b.samples, loader.samples(step, v));
              for (int64_t i = 0; i < b.samples; ++i)
                ASSERT_EQ(b.input.data<float>()[2 * i], static_cast<float>(epoch));
              order.insert(order.end(), b.target.data<int64_t>(), b.target.data<int64_t>() + b.samples);
              in_step += b.samples;
              least = std::min(least, b.samples);
              most = std::max(most, b.samples);
            }
            ASSERT_EQ(in_step, loader.samples(step));
            ASSERT_LE(most - least, 1);
          }
          ASSERT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), static_cast<size_t>(n));
          ASSERT_EQ(order.size(), static_cast<size_t>(n));
          orders.push_back(order);
        }
        EXPECT_TRUE(n <= 7 || orders[0] != orders[1]);
      }
}

// Any sequence of sizes works, also if one exceeds the rest of an epoch, or a whole epoch.
TEST(Loader, ServesEverySampleExactlyOnceAnEpochInBatchesOfAnySizes) {
  const int64_t n = 53;
  const int64_t sizes[] = {8, 8, 16, 5, 40, 8, 1, 60, 13, 13, 26, 3};
  for (const int threads : {0, 2}) {
    Loader loader(std::make_shared<Numbers>(n), {.seed = 5, .global_batch = 8, .virtual_ranks = 3, .threads = threads});
    Cursor at{0, 0};
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      std::vector<int64_t> order;
      while (at.samples / n == epoch) {
        at.batch = sizes[static_cast<size_t>(at.samples * 7 + epoch) % std::size(sizes)];
        int64_t in_step = 0;
        for (int v = 0; v < 3; ++v) {
          const Batch b = loader.batch(at, v);
          order.insert(order.end(), b.target.data<int64_t>(), b.target.data<int64_t>() + b.samples);
          in_step += b.samples;
        }
        ASSERT_EQ(in_step, loader.samples(at));
        ASSERT_LE(in_step, at.batch);
        at.samples += in_step;
      }
      ASSERT_EQ(order.size(), static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], loader.index(epoch, i));
    }
  }
}

// Runs with other batch sizes take their schedule from this step.
TEST(Loader, TheStepOfASampleIsThatOfTheConfiguredBatch) {
  const Loader loader(std::make_shared<Numbers>(53), {.global_batch = 8, .threads = 0});
  for (int64_t step = 0; step < 30; ++step) {
    const Cursor at = loader.cursor(step);
    EXPECT_EQ(loader.step_at(at.samples), step);
    EXPECT_EQ(loader.step_at(at.samples + loader.samples(at) - 1), step);
  }
}

// AdaBatch's rule: each epoch has every sample once, in batches that grow.
TEST(Loader, ABatchGrowsAfterEpochs) {
  const int64_t n = 53;
  for (const int threads : {0, 2}) {
    Loader loader(std::make_shared<Numbers>(n), {.seed = 5,
                                                 .global_batch = 4,
                                                 .growth = {.every = 2, .factor = 3, .most = 20},
                                                 .virtual_ranks = 3,
                                                 .threads = threads});
    int64_t step = 0;
    for (int64_t epoch = 0; epoch < 9; ++epoch) {
      const int64_t batch = epoch < 2 ? 4 : epoch < 4 ? 12 : 20;
      EXPECT_EQ(loader.batch_of_epoch(epoch), batch);
      EXPECT_EQ(loader.steps_in(static_cast<double>(epoch)), static_cast<double>(step));
      std::vector<int64_t> order;
      while (order.size() < static_cast<size_t>(n)) {
        EXPECT_EQ(loader.cursor(step),
                  (Cursor{.samples = epoch * n + static_cast<int64_t>(order.size()), .batch = batch}));
        for (int v = 0; v < 3; ++v) {
          const Batch b = loader.batch(step, v);
          order.insert(order.end(), b.target.data<int64_t>(), b.target.data<int64_t>() + b.samples);
        }
        ++step;
      }
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(order[static_cast<size_t>(i)], loader.index(epoch, i));
    }
    EXPECT_EQ(step, 2 * 14 + 2 * 5 + 5 * 3);
  }
  EXPECT_THROW(Loader(std::make_shared<Numbers>(n), {.global_batch = 4, .growth = {.every = 1, .most = 3}}),
               UsageError);
}

// The assignment of the batch to virtual ranks determines which worker computes a sample, not the batch's contents.
TEST(Loader, TheGlobalBatchIsTheSameForAnyNumberOfVirtualRanks) {
  const auto dataset = std::make_shared<Numbers>(101);
  Loader one(dataset, {.seed = 5, .global_batch = 16}),
      many(dataset, {.seed = 5, .global_batch = 16, .virtual_ranks = 5});
  for (int64_t step = 0; step < 9; ++step) {
    const Batch whole = one.batch(step, 0);
    std::vector<int64_t> assigned;
    for (int v = 0; v < 5; ++v) {
      const Batch b = many.batch(step, v);
      assigned.insert(assigned.end(), b.target.data<int64_t>(), b.target.data<int64_t>() + b.samples);
    }
    EXPECT_EQ(assigned,
              std::vector<int64_t>(whole.target.data<int64_t>(), whole.target.data<int64_t>() + whole.samples));
  }
}

TEST(Loader, WithoutShufflingOrAugmentationOrderAndDrawsAreFixed) {
  Loader loader(std::make_shared<Numbers>(10), {.seed = 5, .global_batch = 4, .shuffle = false, .augment = false});
  const Batch b = loader.batch(1, 0);
  EXPECT_EQ(std::vector<int64_t>(b.target.data<int64_t>(), b.target.data<int64_t>() + 4),
            (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(b.input.data<float>()[1], -1.0f);
}

TEST(Loader, LateEpochsAreAsInEvaluation) {
  const std::shared_ptr<const Dataset> dataset = open_dataset(
      {.kind = "synthetic", .image_size = 12, .crop_padding = 2, .flip = true, .size = 20, .classes = 4}, Split::train);
  const Mixing mixing{.mixup = 0.4};
  Loader always(dataset, {.seed = 5, .global_batch = 10, .mixing = mixing});
  Loader never(dataset, {.seed = 5, .global_batch = 10, .augment = false});
  Loader early(dataset, {.seed = 5, .global_batch = 10, .augment_epochs = 2, .mixing = mixing});
  for (int64_t step = 0; step < 8; ++step) {
    const Batch b = early.batch(step, 0), expected = (step < 4 ? always : never).batch(step, 0);
    EXPECT_TRUE(same_bits(b.input, expected.input)) << step;
    EXPECT_EQ(b.mixed.share.defined(), step < 4) << step;
  }
}

TEST(Loader, ReadersAndTheOrderOfRequestsChangeNoByte) {
  const std::shared_ptr<const Dataset> dataset =
      open_dataset({.kind = "synthetic", .image_size = 12, .crop_padding = 2, .flip = true, .size = 103, .classes = 4},
                   Split::train);
  const LoaderOptions plain{.seed = 5, .global_batch = 16, .virtual_ranks = 3, .threads = 0};
  Loader reference(dataset, plain);
  for (int threads : {1, 2, 5})
    for (int prefetch : {0, 1, 3, 40}) {
      LoaderOptions options = plain;
      options.threads = threads;
      options.prefetch = prefetch;
      Loader loader(dataset, options);
      const auto expect_equal = [&](int64_t step, int vrank) {
        const Batch a = loader.batch(step, vrank), b = reference.batch(step, vrank);
        EXPECT_TRUE(same_bits(a.input, b.input)) << step << " " << vrank;
        EXPECT_TRUE(same_bits(a.target, b.target)) << step << " " << vrank;
      };
      for (int64_t step = 0; step < 9; ++step)
        for (int v = 0; v < 3; ++v) expect_equal(step, v);
      for (int64_t step : {100, 2, 3, 3}) expect_equal(step, 1);  // jumps, as after resuming, and a repetition
      loader.expect(1, 2);
      for (int64_t step = 20; step < 24; ++step)
        for (int v : {1, 2}) expect_equal(step, v);
    }
}

// The first sample that a reader makes is not finished before the thread that asks has read a later one.
class Stuck final : public test::Endless {
 public:
  bool reader_was_stuck() const {
    const std::lock_guard lock(mutex_);
    return stuck_;
  }
  bool reader_was_freed() const {
    const std::lock_guard lock(mutex_);
    return freed_;
  }

 private:
  void reads(int64_t index) const override {
    std::unique_lock lock(mutex_);
    if (std::this_thread::get_id() == asking_) {
      latest_ = std::max(latest_, index);
      changed_.notify_all();
    } else if (!stuck_) {
      stuck_ = true;
      freed_ = changed_.wait_for(lock, std::chrono::seconds(60), [&] { return latest_ > index; });
    }
  }

  std::thread::id asking_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t latest_ = -1;  // read by the thread that asks
  mutable bool stuck_ = false, freed_ = false;
};

TEST(Loader, WhoeverWaitsForAReaderMakesOtherBatches) {
  const auto data = std::make_shared<Stuck>();
  Loader loader(data, {.global_batch = 1, .shuffle = false, .threads = 1, .prefetch = 3});
  int64_t step = 0;
  for (; !data->reader_was_stuck(); ++step) ASSERT_EQ(loader.batch(step, 0).target.data<int64_t>()[0], step);
  for (const int64_t end = step + 5; step < end; ++step)
    ASSERT_EQ(loader.batch(step, 0).target.data<int64_t>()[0], step);
  EXPECT_TRUE(data->reader_was_freed());
}

TEST(Loader, PreparesNoMoreThanItWasTold) {
  const auto dataset = std::make_shared<Numbers>(1000);
  Loader loader(dataset, {.global_batch = 10, .threads = 2, .prefetch = 3});
  for (int64_t step = 0; step < 20; ++step) loader.batch(step, 0);
  EXPECT_LE(dataset->reads, 230);
}

TEST(Loader, AFailureBelongsToItsBatch) {
  for (int threads : {0, 1, 3}) {
    Loader loader(std::make_shared<Numbers>(20, 13), {.global_batch = 4, .shuffle = false, .threads = threads});
    for (int64_t step = 0; step < 3; ++step) loader.batch(step, 0);
    EXPECT_EQ(message_of<Failure>([&] { loader.batch(3, 0); }), "sample 13 is damaged");
    EXPECT_EQ(loader.batch(4, 0).target.data<int64_t>()[0], 16);
    EXPECT_EQ(message_of<Failure>([&] { loader.batch(3, 0); }), "sample 13 is damaged");
  }
}

TEST(Loader, RefusesOptionsWithoutSense) {
  const auto error = [](LoaderOptions options, int64_t size = 10) {
    return message_of<UsageError>([&] { Loader(std::make_shared<Numbers>(size), options); });
  };
  EXPECT_NE(error({.global_batch = 0}).find("batch_size must be at least 1"), std::string::npos);
  EXPECT_NE(
      error({.global_batch = 4, .virtual_ranks = 5}).find("virtual_ranks must be from 1 to batch_size = 4, got 5"),
      std::string::npos);
  EXPECT_NE(error({.threads = -1}).find("reader threads"), std::string::npos);
  EXPECT_NE(error({.prefetch = -1}).find("prefetch"), std::string::npos);
  EXPECT_NE(error({}, 0).find("no samples"), std::string::npos);
  Loader loader(std::make_shared<Numbers>(10), {});
  EXPECT_NE(message_of<UsageError>([&] { loader.batch(-1, 0); }).find("step must not be negative"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { loader.batch(0, 1); }).find("virtual rank 1"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { loader.expect(0, 2); }).find("no interval"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
