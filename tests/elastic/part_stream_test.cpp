// Parts of checkpoints on their way: streamed to a coordinator that writes them, and copied before that.
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

// A state of several pieces, and one that has tensors without elements.
StateDict large_state() {
  StateDict state = {{"a", Tensor::full({3, 1 << 20}, 1.5)}, {"b", Tensor::empty({0})}, {"c", Tensor::full({5}, -2.0)}};
  for (int i = 0; i < 1500; ++i) state.emplace(fmt::format("d{}", i), Tensor::full({2}, 1.0 * i));
  return state;
}

// Sends a part as a worker does that does not see the directory; `spoil` may change what is sent.
Message stream(PartReceiver& receiver, int64_t step, const StateDict& state,
               const std::function<bool(Message&)>& keep) {
  std::string error;
  Message saved{.kind = "saved", .sender = 7, .step = step, .body = {{"part", 0}, {"parts", 1}, {"streamed", true}}};
  const CheckpointPart sent = send_part(step, 0, 1, state, [&](Message piece, int64_t end) {
    piece.sender = 7;
    if (!keep(piece)) return;
    const Message answer = receiver.take(piece);
    if (answer.body.contains("error")) error = answer.body["error"].get<std::string>();
    else EXPECT_EQ(answer.body.at("offset").get<int64_t>(), end);
  });
  EXPECT_EQ(sent.file, "part-0-of-1.safetensors");
  if (!error.empty()) saved.body["error"] = error;
  saved.body["bytes"] = sent.bytes;
  saved.body["digest"] = sent.digest.hex();
  return receiver.finish(saved);
}

TEST(PartStream, TheCoordinatorWritesTheVeryFileThatTheWorkerWould) {
  const test::TemporaryFolder folder;
  const CheckpointStore here(folder / "here"), there(folder / "there");
  const StateDict state = large_state();
  const CheckpointPart written = here.write_part(4, part_file(0, 1), state);
  PartReceiver receiver(there);
  int pieces = 0;
  const Message saved = stream(receiver, 4, state, [&](Message& piece) {
    size_t bytes = 0;
    for (const Blob& blob : piece.blobs) bytes += blob.bytes;
    EXPECT_LE(bytes, size_t{8} << 20);
    return ++pieces > 0;
  });
  EXPECT_GE(pieces, 3);
  EXPECT_FALSE(saved.body.contains("error")) << saved.body;
  EXPECT_EQ(saved.body["file"], written.file);
  EXPECT_EQ(saved.body["digest"], written.digest.hex());
  EXPECT_EQ(read_file(folder / "there" / ".writing-4" / written.file),
            read_file(folder / "here" / ".writing-4" / written.file));
}

TEST(PartStream, ALostPieceAFlippedBitAndAFullDiskAreSeen) {
  const test::TemporaryFolder folder;
  PartReceiver receiver{CheckpointStore(folder / "c")};
  const StateDict state = large_state();
  int pieces = 0;
  Message saved = stream(receiver, 1, state, [&](Message&) { return ++pieces != 2; });
  EXPECT_TRUE(saved.body.contains("error"));
  saved = stream(receiver, 1, state, [&](Message& piece) {
    Blob& blob = piece.blobs.back();
    const auto bytes = std::make_shared<std::vector<std::byte>>(blob.data, blob.data + blob.bytes);
    bytes->back() ^= std::byte{1};
    blob = {bytes, bytes->data(), bytes->size()};
    return true;
  });
  EXPECT_NE(saved.body.value("error", "").find("not what was sent"), std::string::npos) << saved.body;
  {
    const FullDisk full(4096);
    saved = stream(receiver, 1, state, [](Message&) { return true; });
  }
  EXPECT_TRUE(saved.body.contains("error"));
  saved.body.erase("error");
  EXPECT_TRUE(receiver.finish(saved).body.contains("error"));  // nothing of it is there
  EXPECT_EQ(entries(folder / "c" / ".writing-1"), 0u);
  saved = stream(receiver, 1, state, [](Message&) { return true; });
  EXPECT_FALSE(saved.body.contains("error")) << saved.body;
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
      [&](PeerId worker, const Message& answer) {
        EXPECT_EQ(worker, 7u);
        const std::lock_guard lock(mutex);
        taken = answer.body.at("offset").get<int64_t>();
        changed.notify_all();
      },
      [&] {
        const std::lock_guard lock(mutex);
        news = true;
        changed.notify_all();
      });
  int64_t sent = 0;
  const CheckpointPart part = send_part(3, 1, 2, large_state(), [&](Message piece, int64_t end) {
    piece.sender = 7;
    EXPECT_TRUE(PartWriter::takes(piece));
    writer.add(std::move(piece));
    sent = end;
  });
  wait([&] { return taken == sent; });
  Message saved{.kind = "saved", .sender = 7, .step = 3, .body = {{"part", 1}, {"parts", 2}, {"streamed", true}}};
  saved.body.update({{"bytes", part.bytes}, {"digest", part.digest.hex()}});
  EXPECT_TRUE(PartWriter::takes(saved));
  writer.add(saved);
  wait([&] { return news; });
  const std::vector<Message> finished = writer.finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_FALSE(finished[0].body.contains("error")) << finished[0].body;
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
  // While one is in use another one is made, and the tensors that are left keep their block.
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
