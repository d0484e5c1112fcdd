#include "elastic/checkpoint/state_copier.h"

#include <gtest/gtest.h>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/state_parts.h"
#include "tensor/base/check.h"
#include "tensor/safetensors.h"
#include "tests/elastic/sliced_state.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

namespace sliced = test::sliced;

constexpr PeerId kLearner = 7;
constexpr int64_t kMegabyte = int64_t{1} << 20;
constexpr std::chrono::hours kForEver{1};

void await(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The messages in which a copier sends a state of 96 MB.
struct CopiedState {
  CopiedState() {
    for (int i = 0; i < 12; ++i) state.emplace(fmt::format("t{:02}", i), Tensor::full({2 * kMegabyte}, i));
  }
  StateCopier::World world() {
    return {.state = [this](const StatePart&) { return state; },
            .directory = [] { return std::filesystem::path(); },
            .send =
                [this](PeerId peer, int64_t, Payload payload) {
                  const std::lock_guard lock(mutex);
                  if (peer == 0) sent = true;
                  else pieces.push_back(*payload.as<messages::StatePieces>());
                },
            .failed = [](std::exception_ptr failure) { std::rethrow_exception(failure); }};
  }
  int64_t megabytes() {
    const std::lock_guard lock(mutex);
    int64_t bytes = 0;
    for (const messages::StatePieces& m : pieces)
      for (const Blob& blob : m.bytes) bytes += static_cast<int64_t>(blob.bytes);
    return bytes / kMegabyte;
  }
  bool whole() {
    const std::lock_guard lock(mutex);
    return sent;
  }

  StateDict state;
  std::mutex mutex;
  std::vector<messages::StatePieces> pieces;
  bool sent = false;
};

TEST(StateCopier, WhatALearnerGetsIsTheState) {
  CopiedState sent;
  {
    StateCopier copier(sent.world(), 1);
    copier.add({.step = 3, .to = kLearner, .attempt = 2});
  }
  StateDict there;
  for (const auto& [name, tensor] : sent.state) there.emplace(name, Tensor::full({2 * kMegabyte}, -1));
  fill(there, sent.pieces);
  EXPECT_EQ(digest(there), digest(sent.state));
  for (size_t i = 0; i < sent.pieces.size(); ++i) EXPECT_EQ(sent.pieces[i].last, i + 1 == sent.pieces.size());
}

// The loop waits for copied() before it changes the state.
TEST(StateCopier, TheLastCheckpointIsWrittenFromTheStateItself) {
  for (const bool last : {false, true}) {
    const test::TemporaryFolder folder;
    CopiedState saved;
    StateCopier::World world = saved.world();
    StateCopier* copier = nullptr;
    std::optional<bool> copied;  // when the part is written
    std::string written;
    world.directory = [&] { return std::filesystem::path(folder.path()); };
    world.send = [&](PeerId, int64_t, const Payload& payload) {
      const auto* told = payload.as<messages::Saved>();
      EXPECT_EQ(told->error, "");
      written = (folder / ("checkpoints/.writing-3/" + told->file)).string();
      copied = copier->copied();
    };
    {
      StateCopier writes(std::move(world), 1);
      copier = &writes;
      writes.add({.step = 3, .last = last});
      writes.wait();
      EXPECT_TRUE(writes.copied());
    }
    EXPECT_EQ(copied, !last);
    EXPECT_EQ(digest(read_safetensors(written).tensors), digest(saved.state));
  }
}

TEST(StateCopier, SendsALearnerASliceAStep) {
  CopiedState sent;
  StateCopier copier(sent.world(), 1, kForEver);
  copier.add({.to = kLearner, .throttled = true});
  await([&] { return copier.copied(); });
  for (const int64_t megabytes : {0, 32, 64}) {  // nothing is sent in the step of the copy
    await([&] { return sent.megabytes() >= megabytes; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(sent.megabytes(), megabytes);
    copier.updated();
  }
  await([&] { return sent.whole(); });
  EXPECT_EQ(sent.megabytes(), 96);
}

TEST(StateCopier, DoesNotRestWhereSomebodyWaits) {
  {
    CopiedState sent;
    StateCopier copier(sent.world(), 1, kForEver);
    copier.add({.to = kLearner, .throttled = true});
    copier.add({.to = kLearner, .attempt = 1});  // a new transfer to the same learner
    await([&] { return sent.megabytes() == 2 * 96; });
  }
  CopiedState sent;
  StateCopier copier(sent.world(), 1, kForEver);
  copier.add({.to = kLearner, .throttled = true});
  copier.finish();
  EXPECT_TRUE(sent.whole());
  EXPECT_EQ(sent.megabytes(), 96);
}

TEST(StateCopier, DoesNotRestForEverWhereStepsAreLong) {
  CopiedState sent;
  StateCopier copier(sent.world(), 1, std::chrono::milliseconds(1));
  copier.add({.to = kLearner, .throttled = true});
  await([&] { return sent.whole(); });
}

// A copier saves its part in the run directory, or streams it: the same file, with the digests of its slices.
TEST(StateCopier, SavesSlices) {
  std::mt19937 random(9);
  const std::vector<StateSlice> slices = sliced::cut(2, random)[0];
  const test::TemporaryFolder folder;
  std::vector<messages::Saved> saved;
  std::mutex mutex;
  for (const bool streamed : {false, true}) {
    StateCopier* at = nullptr;
    StateCopier copier(
        {.state = [](const StatePart&) { return sliced::replicated(); },
         .directory = [&] { return streamed ? std::filesystem::path() : std::filesystem::path(folder.path()); },
         .send =
             [&](PeerId, int64_t step, Payload payload) {
               const std::lock_guard lock(mutex);
               if (const auto* report = payload.as<messages::Saved>()) saved.push_back(*report);
               const auto* piece = payload.as<messages::FilePiece>();
               int64_t end = piece ? piece->offset : 0;
               if (!piece) return;
               for (const Blob& blob : piece->bytes) end += static_cast<int64_t>(blob.bytes);
               at->piece_taken(step, {.part = piece->part, .parts = piece->parts, .offset = end});
             },
         .failed = [](std::exception_ptr failure) { std::rethrow_exception(failure); },
         .slices = [&](const StatePart&) { return slices; }},
        1);
    at = &copier;
    copier.add({.step = sliced::kStep, .part = 0, .parts = 2, .attested = true, .buckets = {0}});
    copier.finish();
  }
  ASSERT_EQ(saved.size(), 2u);
  const StateDict tensors = part_of(sliced::replicated(), 0, 2);
  for (const messages::Saved& each : saved) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.digests, to_text(digests_of(tensors)));
    ASSERT_EQ(each.slices.size(), slices.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(each.slices[i].tensor, slices[i].tensor);
      EXPECT_EQ(each.slices[i].chunks, slice_digests({&slices[i], 1})[0].chunks);
    }
    EXPECT_EQ(each.state, digest(sliced::replicated()));
    EXPECT_EQ(each.digest, saved[0].digest);
  }
  EXPECT_EQ(
      CheckpointStore(folder / "again").write_part(sliced::kStep, "part-0-of-2.safetensors", tensors, slices).digest,
      saved[0].digest);
}

}  // namespace
}  // namespace elinvar
