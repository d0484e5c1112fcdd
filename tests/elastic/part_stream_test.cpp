// Parts of checkpoints in transit: they are copied, and then streamed to a coordinator that writes them.
#include "elastic/checkpoint/part_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "elastic/checkpoint/part_writer.h"
#include "elastic/checkpoint/snapshot.h"
#include "tensor/allocator.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::entries;
using test::FullDisk;

// A state of several pieces, including tensors without elements.
StateDict large_state() {
  StateDict state = {{"a", Tensor::full({3, 1 << 20}, 1.5)}, {"b", Tensor::empty({0})}, {"c", Tensor::full({5}, -2.0)}};
  for (int i = 0; i < 1500; ++i) state.emplace(fmt::format("d{}", i), Tensor::full({2}, 1.0 * i));
  return state;
}

// Sends a part as a worker does that cannot see the directory; `spoil` may change the messages.
constexpr PeerId kWorker = 7;

messages::Saved stream(PartReceiver& receiver, int64_t step, const StateDict& state,
                       const std::function<bool(messages::FilePiece&)>& keep) {
  messages::Saved saved{.streamed = true};
  const CheckpointPart sent = send_part(0, 1, state, [&](messages::FilePiece piece, int64_t end) {
    if (!keep(piece)) return;
    const messages::Taken answer = receiver.take(kWorker, step, piece);
    if (!answer.error.empty()) saved.error = answer.error;
    else EXPECT_EQ(answer.offset, end);
  });
  EXPECT_EQ(sent.file, "part-0-of-1.safetensors");
  saved.bytes = sent.bytes;
  saved.digest = sent.digest;
  return receiver.finish(kWorker, step, saved);
}

TEST(PartStream, TheCoordinatorWritesTheVeryFileThatTheWorkerWould) {
  const test::TemporaryFolder folder;
  const CheckpointStore here(folder / "here"), there(folder / "there");
  const StateDict state = large_state();
  const CheckpointPart written = here.write_part(4, part_file(0, 1), state);
  PartReceiver receiver(there);
  int pieces = 0;
  const messages::Saved saved = stream(receiver, 4, state, [&](messages::FilePiece& piece) {
    size_t bytes = 0;
    for (const Blob& blob : piece.bytes) bytes += blob.bytes;
    EXPECT_LE(bytes, size_t{8} << 20);
    return ++pieces > 0;
  });
  EXPECT_GE(pieces, 3);
  EXPECT_EQ(saved.error, "");
  EXPECT_EQ(saved.file, written.file);
  EXPECT_EQ(saved.digest, written.digest);
  EXPECT_EQ(read_file(folder / "there" / ".writing-4" / written.file),
            read_file(folder / "here" / ".writing-4" / written.file));
}

TEST(PartStream, ALostPieceAFlippedBitAndAFullDiskAreSeen) {
  const test::TemporaryFolder folder;
  PartReceiver receiver{CheckpointStore(folder / "c")};
  const StateDict state = large_state();
  int pieces = 0;
  messages::Saved saved = stream(receiver, 1, state, [&](messages::FilePiece&) { return ++pieces != 2; });
  EXPECT_NE(saved.error, "");
  saved = stream(receiver, 1, state, [&](messages::FilePiece& piece) {
    Blob& blob = piece.bytes.back();
    const auto bytes = std::make_shared<std::vector<std::byte>>(blob.data, blob.data + blob.bytes);
    bytes->back() ^= std::byte{1};
    blob = {bytes, bytes->data(), bytes->size()};
    return true;
  });
  EXPECT_NE(saved.error.find("not what was sent"), std::string::npos) << saved.error;
  {
    const FullDisk full(4096);
    saved = stream(receiver, 1, state, [](messages::FilePiece&) { return true; });
  }
  EXPECT_NE(saved.error, "");
  saved.error.clear();
  EXPECT_NE(receiver.finish(kWorker, 1, saved).error, "");  // no part of the file is left
  EXPECT_EQ(entries(folder / "c" / ".writing-1"), 0u);
  saved = stream(receiver, 1, state, [](messages::FilePiece&) { return true; });
  EXPECT_EQ(saved.error, "");
}

TEST(PartStream, AThreadWritesWhatComesAndTells) {
  const test::TemporaryFolder folder;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t taken = 0;
  bool news = false;
  const auto wait = [&](const std::function<bool()>& done) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), done));
  };
  PartWriter writer(
      CheckpointStore(folder / "c"),
      [&](PeerId worker, int64_t step, const messages::Taken& answer) {
        EXPECT_EQ(worker, kWorker);
        EXPECT_EQ(step, 3);
        const std::lock_guard lock(mutex);
        taken = answer.offset;
        changed.notify_all();
      },
      [&] {
        const std::lock_guard lock(mutex);
        news = true;
        changed.notify_all();
      });
  int64_t sent = 0;
  const auto from_worker = [](Payload payload) {
    const Message message{.sender = kWorker, .step = 3, .payload = std::move(payload)};
    EXPECT_TRUE(PartWriter::takes(message));
    return message;
  };
  const CheckpointPart part = send_part(1, 2, large_state(), [&](messages::FilePiece piece, int64_t end) {
    writer.add(from_worker(std::move(piece)));
    sent = end;
  });
  wait([&] { return taken == sent; });
  writer.add(from_worker(
      messages::Saved{.part = 1, .parts = 2, .bytes = part.bytes, .digest = part.digest, .streamed = true}));
  wait([&] { return news; });
  const std::vector<PartWriter::Finished> finished = writer.finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].step, 3);
  EXPECT_EQ(finished[0].saved.error, "");
  EXPECT_EQ(fs::file_size(folder / "c" / ".writing-3" / part.file), static_cast<size_t>(part.bytes));
}

TEST(Snapshot, CopiesIntoMemoryThatIsThereBeforehand) {
  const StateDict state = large_state();
  SnapshotMemory memory;
  memory.prepare(SnapshotMemory::bytes_for(state));
  const AllocatorStats before = HostAllocator::instance().stats();
  const void* where = nullptr;
  for (int i = 0; i < 3; ++i) {
    const StateDict copy = memory.copy(state);
    EXPECT_EQ(digest(copy), digest(state));
    EXPECT_NE(copy.at("a").raw(), state.at("a").raw());
    EXPECT_TRUE(!where || copy.at("a").raw() == where);
    where = copy.at("a").raw();
  }
  EXPECT_EQ(HostAllocator::instance().stats().in_use, before.in_use);
  // While one block is in use another one is made, and the remaining tensors keep their block.
  StateDict first = memory.copy(state);
  const Tensor kept = first.at("c");
  first.clear();
  const StateDict second = memory.copy(state);
  EXPECT_NE(second.at("a").raw(), where);
  EXPECT_EQ(digest(kept), digest(state.at("c")));
  EXPECT_EQ(digest(second), digest(state));
}

}  // namespace
}  // namespace elinvar
