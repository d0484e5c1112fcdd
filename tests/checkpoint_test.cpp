#include "elastic/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "elastic/ledger.h"
#include "elastic/session.h"
#include "tensor/check.h"
#include "tests/temporary_folder.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

StateDict state_of(int64_t step) {
  return {{"model.weight", Tensor::full({40, 50}, static_cast<double>(step))},
          {"optimizer.weight.v", Tensor::full({7}, -1.0 * static_cast<double>(step))}};
}

void write(CheckpointStore& store, int64_t step) { store.write(step, state_of(step), digest(state_of(step))); }

std::optional<Checkpoint> newest(const CheckpointStore& store, std::vector<CheckpointStore::Rejected>& rejected) {
  return store.newest_good([](const Checkpoint&) { return std::string(); }, rejected);
}

void flip_byte(const fs::path& path, size_t at) {
  std::string bytes = read_file(path);
  bytes[at % bytes.size()] ^= 1;
  replace_file(path, bytes);
}

// Lets no file grow beyond `bytes`: what a full disk looks like from here.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

size_t entries(const fs::path& path) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}

TEST(Checkpoint, RoundTripAndPruning) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "checkpoints", 2);
  store.prepare();
  for (int64_t step : {5, 10, 15}) write(store, step);
  EXPECT_EQ(store.steps(), (std::vector<int64_t>{10, 15}));
  const Checkpoint read = store.read(15);
  EXPECT_EQ(digest(read.state), digest(state_of(15)));
  EXPECT_EQ(read.digest, digest(state_of(15)));
  EXPECT_EQ(entries(folder / "checkpoints"), 2u);
  EXPECT_THROW(store.read(5), Failure);
}

TEST(Checkpoint, EveryDamageIsSeenAndThePreviousOneUsed) {
  const test::TemporaryFolder folder;
  const std::vector<std::function<void(const fs::path&)>> damages = {
      [](const fs::path& p) { fs::resize_file(p / "part-0.safetensors", fs::file_size(p / "part-0.safetensors") - 1); },
      [](const fs::path& p) { fs::resize_file(p / "part-0.safetensors", 3); },
      [](const fs::path& p) { fs::remove(p / "part-0.safetensors"); },
      [](const fs::path& p) { flip_byte(p / "part-0.safetensors", 5000); },
      [](const fs::path& p) { flip_byte(p / "part-0.safetensors", 0); },
      [](const fs::path& p) { fs::remove(p / "manifest.json"); },
      [](const fs::path& p) { fs::resize_file(p / "manifest.json", 40); },
      [](const fs::path& p) { replace_file(p / "manifest.json", "{}"); },
      [](const fs::path& p) { replace_file(p / "manifest.json", R"({"format":2})"); },
      [](const fs::path& p) {
        fs::remove_all(p);
        fs::copy(p.parent_path() / "step-1", p);
      }};
  for (size_t i = 0; i < damages.size(); ++i) {
    const fs::path directory = folder / std::to_string(i);
    CheckpointStore store(directory, 3);
    store.prepare();
    write(store, 1);
    write(store, 2);
    damages[i](directory / "step-2");
    std::vector<CheckpointStore::Rejected> rejected;
    const auto found = newest(store, rejected);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(found->step, 1) << i;
    ASSERT_EQ(rejected.size(), 1u) << i;
    EXPECT_NE(rejected[0].reason.find("step-2 cannot be used"), std::string::npos) << rejected[0].reason;

    write(store, 2);  // replaces the damaged one
    EXPECT_EQ(store.read(2).digest, digest(state_of(2))) << i;
    EXPECT_EQ(entries(directory), 2u) << i;
  }
}

TEST(Checkpoint, EveryByteOfAPartIsCovered) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "c", 3);
  store.prepare();
  write(store, 1);
  const fs::path part = folder / "c" / "step-1" / "part-0.safetensors";
  const size_t size = fs::file_size(part);
  for (size_t at = 0; at < size; at += 97) {
    flip_byte(part, at);
    EXPECT_THROW(store.read(1), Failure) << at;
    flip_byte(part, at);
  }
  EXPECT_NO_THROW(store.read(1));
}

TEST(Checkpoint, AFullDiskLeavesNothingBehind) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "c", 3);
  store.prepare();
  write(store, 1);
  {
    const FullDisk full(4096);
    try {
      write(store, 2);
      FAIL();
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find("make room"), std::string::npos) << failure.what();
    }
  }
  EXPECT_EQ(store.steps(), std::vector<int64_t>{1});
  EXPECT_EQ(entries(folder / "c"), 1u);
  EXPECT_NO_THROW(store.read(1));
}

TEST(Checkpoint, WhatACrashLeftAsideIsRemoved) {
  const test::TemporaryFolder folder;
  make_directories(folder / "c" / ".writing-7");
  CheckpointStore store(folder / "c", 3);
  store.prepare();
  EXPECT_EQ(entries(folder / "c"), 0u);
  std::vector<CheckpointStore::Rejected> rejected;
  EXPECT_FALSE(newest(store, rejected));
}

// A state of one number that every step multiplies, in a session of three virtual ranks.
struct Toy {
  Tensor weight = Tensor::full({3}, 1.0);

  SessionOptions options(const fs::path& directory, bool resume = false) const {
    return {.directory = directory,
            .virtual_ranks = 3,
            .steps = 10,
            .state_digest_every = 2,
            .checkpoint_every = 3,
            .keep = 2,
            .resume = resume};
  }
  StateAccess access() {
    return {.view =
                [this] {
                  return StateDict{{"model.weight", weight}};
                },
            .load = [this](const StateDict& state) { weight = state.at("model.weight").clone(); }};
  }
  void train(Session& session, int64_t steps) {
    while (session.step() < steps) {
      for (int vrank : session.begin().mine) {
        const double value = static_cast<double>(session.step() + vrank);
        session.add(vrank, {.gradients = {Tensor::full({3}, value)},
                            .terms = {Tensor::full({2}, 1.0)},
                            .loss_sum = value,
                            .count = 2,
                            .samples = 2,
                            .batch = {0, static_cast<uint64_t>(value)}});
      }
      session.reduce();
      EXPECT_EQ(session.reduced().leaves, 3);
      EXPECT_EQ(session.reduced().terms.at(0).data<float>()[0], 3.0f);
      weight = weight.clone();
      weight.data<float>()[0] += session.reduced().gradients.at(0).data<float>()[0];
      session.advance();
    }
  }
};

TEST(Session, ResumesFromEveryCheckpointWithTheSameLedger) {
  const test::TemporaryFolder folder;
  Toy toy;
  {
    Session session(toy.options(folder / "whole"), toy.access());
    toy.train(session, 10);
  }
  const std::string whole = read_file(folder / "whole" / "ledger.jsonl");
  const Digest end = digest(toy.weight);

  for (int64_t stop = 0; stop <= 10; ++stop) {
    const fs::path directory = folder / std::to_string(stop);
    {
      Toy first;
      Session session(first.options(directory), first.access());
      first.train(session, stop);
      if (stop == 5) session.checkpoint();
    }
    Toy second;
    Session session(second.options(directory, true), second.access());
    EXPECT_EQ(session.step(), stop == 10 ? 10 : stop == 5 ? 5 : stop / 3 * 3);
    second.train(session, 10);
    EXPECT_EQ(read_file(directory / "ledger.jsonl"), whole) << stop;
    EXPECT_EQ(digest(second.weight), end);
  }
}

TEST(Session, RefusesWhatItShould) {
  const test::TemporaryFolder folder;
  Toy toy;
  {
    Session session(toy.options(folder / "run"), toy.access());
    EXPECT_THROW(Session(toy.options(folder / "run", true), toy.access()), UsageError);  // in use
    toy.train(session, 7);
  }
  EXPECT_THROW(Session(toy.options(folder / "run"), toy.access()), UsageError);  // holds a run

  // A checkpoint that the ledger contradicts, or does not reach, is passed over.
  const fs::path ledger = folder / "run" / "ledger.jsonl";
  const std::string text = read_file(ledger);
  size_t end = 0;
  for (int line = 0; line < 5; ++line) end = text.find('\n', end) + 1;
  replace_file(ledger, text.substr(0, end));
  {
    Session session(toy.options(folder / "run", true), toy.access());
    EXPECT_EQ(session.step(), 3);
    EXPECT_EQ(session.notices().size(), 2u);
  }
  flip_byte(folder / "run" / "checkpoints" / "step-3" / "manifest.json", 10);
  try {
    Session(toy.options(folder / "run", true), toy.access());
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("no checkpoint is good"), std::string::npos) << failure.what();
  }
}

TEST(Session, AbsentLeavesAndTheMean) {
  const test::TemporaryFolder folder;
  Toy toy;
  Session session(toy.options(folder / "run"), toy.access());
  session.begin();
  session.add(0, {.gradients = {Tensor::full({1}, 3.0)}, .loss_sum = 3, .count = 3, .correct = 1, .samples = 3});
  session.add(1, {});
  session.add(2, {.gradients = {Tensor::full({1}, 4.5)}, .loss_sum = 3, .count = 2, .correct = 1, .samples = 2});
  session.reduce();
  EXPECT_EQ(session.reduced().gradients.at(0).data<float>()[0], 7.5f * static_cast<float>(1.0 / 5.0));
  EXPECT_EQ(session.reduced().loss, 6.0 / 5.0);
  EXPECT_EQ(session.reduced().leaves, 2);
  session.begin();
  for (int vrank = 0; vrank < 3; ++vrank) session.add(vrank, {});
  EXPECT_THROW(session.reduce(), Failure);
}

}  // namespace
}  // namespace elinvar
