#include "elastic/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <functional>

#include "elastic/checkpoint/part_stream.h"
#include "tensor/base/check.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::entries;
using test::flip_byte;
using test::FullDisk;
using test::ReadOnly;

StateDict state_of(int64_t step) {
  return {{"model.weight", Tensor::full({40, 50}, static_cast<double>(step))},
          {"optimizer.weight.v", Tensor::full({7}, -1.0 * static_cast<double>(step))}};
}

void write(CheckpointStore& store, int64_t step) { store.write(step, state_of(step), digest(state_of(step))); }

std::optional<Checkpoint> newest(const CheckpointStore& store, std::vector<CheckpointStore::Rejected>& rejected) {
  return store.newest_good([](const Checkpoint&) { return std::string(); }, rejected);
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
      [](const fs::path& p) { replace_file(p / "manifest.json", R"({"format":3})"); },
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

TEST(Checkpoint, AReadOnlyDirectoryIsReportedAndWhatIsThereCounts) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "c", 3);
  store.prepare();
  write(store, 1);
  {
    const ReadOnly disk(folder, folder / "c");
    try {
      write(store, 2);
      ADD_FAILURE();
    } catch (const Failure& failure) {
      EXPECT_NE(std::string(failure.what()).find("can be written to"), std::string::npos) << failure.what();
    }
    EXPECT_NE(PartReceiver(store).take(/*worker=*/7, /*step=*/2, {}).error, "");
    std::vector<CheckpointStore::Rejected> rejected;
    const auto found = newest(store, rejected);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 1);
  }
}

// A coordinator that takes over finds such a checkpoint if its predecessor died right after the commit. Only the
// manifest is read.
TEST(Checkpoint, OneThatIsCommittedIsNotCommittedAgain) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "c", 3);
  write(store, 2);
  fs::remove(folder / "c" / "step-2" / "part-0.safetensors");
  EXPECT_NO_THROW(store.commit(2, {}, digest(state_of(2))));
  EXPECT_THROW(store.commit(2, {}, digest(state_of(3))), Failure);
  EXPECT_THROW(store.commit(3, {}, digest(state_of(3))), Failure);
}

// The error does not end the run, and a partly removed checkpoint is not taken for a checkpoint.
TEST(Checkpoint, AnOldOneThatCannotBeRemovedIsTriedAgain) {
  const test::TemporaryFolder folder;
  const fs::path path = folder / "checkpoints";
  CheckpointStore all(path, 9);
  for (const int64_t step : {1, 2}) all.write(step, state_of(step), digest(state_of(step)));
  const CheckpointStore one(path, 1);
  const auto read_only =
      fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec;
  fs::permissions(path / "step-1", read_only);
  for (const fs::path& open : {fs::path(folder.path()), path}) fs::permissions(open, fs::perms::all);
  const uid_t user = ::geteuid();
  if (user == 0) {
    ASSERT_EQ(::seteuid(65534), 0);  // root may remove everything
  }
  const std::string why = one.prune(2);
  if (user == 0) {
    ASSERT_EQ(::seteuid(user), 0);
  }
  EXPECT_NE(why.find("cannot remove"), std::string::npos) << why;
  EXPECT_EQ(one.steps(), std::vector<int64_t>{2});
  for (const fs::path& left : paths_in(path)) fs::permissions(left, fs::perms::owner_all);
  EXPECT_EQ(one.prune(2), "");
  EXPECT_EQ(entries(path), 1u);
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

}  // namespace
}  // namespace elinvar
