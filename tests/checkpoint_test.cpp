#include "elastic/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>

#include "elastic/ledger.h"
#include "elastic/part_stream.h"
#include "elastic/part_writer.h"
#include "elastic/run_directory.h"
#include "elastic/snapshot.h"
#include "tensor/allocator.h"
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

// Nothing can be created in the folder, and if root asks.
class ReadOnly {
 public:
  explicit ReadOnly(const test::TemporaryFolder& folder, const fs::path& path) : path_(path) {
    const fs::perms read = fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read |
                           fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec;
    fs::permissions(folder.path(), read | fs::perms::owner_write);
    fs::permissions(path_, read);
    if (user_ == 0 && seteuid(65534) != 0) throw std::runtime_error("cannot become nobody");
  }
  ~ReadOnly() {
    if (user_ == 0 && seteuid(user_) != 0) std::abort();
    fs::permissions(path_, fs::perms::owner_all);
  }

 private:
  fs::path path_;
  uid_t user_ = geteuid();
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
    const Message piece{.kind = "piece", .sender = 7, .step = 2, .body = {{"part", 0}, {"parts", 1}, {"offset", 0}}};
    EXPECT_TRUE(PartReceiver(store).take(piece).body.contains("error"));
    std::vector<CheckpointStore::Rejected> rejected;
    const auto found = newest(store, rejected);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, 1);
  }
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

// The facts of a run of ten updates whose state is one number, as workers tell them.
struct Toy {
  static StateDict state(int64_t step) {
    return {{"model.weight", Tensor::full({3}, static_cast<double>(step) * 1.5)},
            {"step", Tensor::from(std::vector<int64_t>{step}, {})}};
  }
  static bool due(int64_t step) { return step > 0 && (step == 10 || step % 2 == 0 || step % 3 == 0); }
  static nlohmann::json facts(int64_t step) {
    nlohmann::json facts = {{"batch", Digest{1, static_cast<uint64_t>(step)}.hex()},
                            {"loss", std::bit_cast<uint64_t>(1.0 / static_cast<double>(step + 1))},
                            {"gradient", Digest{2, static_cast<uint64_t>(step)}.hex()},
                            {"leaves", {{"0", Digest{3, static_cast<uint64_t>(step)}.hex()}}},
                            {"lr", std::bit_cast<uint64_t>(0.5)}};
    if (step % 4 != 0)
      facts["digests"] = {{"batches", "b"}, {"losses", "l"}, {"gradient", "g"}, {"leaves", {{"0", "f"}}}};
    if (step == 10) facts = nlohmann::json::object();
    if (due(step)) {
      const StateSum sum = state_sum(to_json(digests_of(state(step))));
      EXPECT_EQ(sum.digest, digest(state(step)));
      facts["state"] = sum.digest.hex();
      facts["state_digests"] = {sum.parts.tensors, sum.parts.chunks};
    }
    return facts;
  }
  static RunDirectory open(const fs::path& path, bool resume = false) {
    RunDirectory directory({.path = path, .state_digest_every = 2, .checkpoint_every = 3, .keep = 2, .resume = resume},
                           {.run = 1});
    directory.begin({}, {.tensors_every = 1});
    directory.set_steps(10);
    return directory;
  }
  // Two workers write their parts.
  static std::vector<int64_t> save(RunDirectory& directory, int64_t step) {
    std::vector<int64_t> committed;
    for (int part = 0; part < 2; ++part) {
      const StateDict mine = part_of(state(step), part, 2);
      const CheckpointPart written = CheckpointStore(directory.path() / "checkpoints")
                                         .write_part(step, "part-" + std::to_string(part) + "-of-2.safetensors", mine);
      Message message{.kind = "saved", .step = step, .body = {{"part", part}, {"parts", 2}}};
      message.body.update({{"file", written.file}, {"bytes", written.bytes}, {"digest", written.digest.hex()}});
      message.body["digests"] = to_json(digests_of(mine));
      const std::vector<int64_t> now = directory.saved(message);
      committed.insert(committed.end(), now.begin(), now.end());
    }
    return committed;
  }
  // Updates [from, to), with scheduled checkpoints.
  static void run(RunDirectory& directory, int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      directory.facts(step, facts(step));
      directory.commit_saved();
      if (step + 1 == 10) directory.facts(10, facts(10));
      if ((step + 1) % 3 == 0 || step + 1 == 10) save(directory, step + 1);
    }
  }
};

TEST(RunDirectory, ResumesFromEveryCheckpointWithTheSameLedger) {
  const test::TemporaryFolder folder;
  {
    RunDirectory directory = Toy::open(folder / "whole");
    Toy::run(directory, 0, 10);
  }
  const std::string whole = read_file(folder / "whole" / "ledger.jsonl"),
                    digests = read_file(folder / "whole" / "digests.jsonl");
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 11);
  for (int64_t stop = 0; stop <= 10; ++stop) {
    const fs::path path = folder / std::to_string(stop);
    {
      RunDirectory directory = Toy::open(path);
      Toy::run(directory, 0, stop);
    }
    RunDirectory directory = Toy::open(path, true);
    const int64_t first = stop == 10 ? 10 : stop / 3 * 3;
    EXPECT_EQ(directory.first_step(), first) << stop;
    Toy::run(directory, first, 10);
    EXPECT_EQ(read_file(path / "ledger.jsonl"), whole) << stop;
    EXPECT_EQ(read_file(path / "digests.jsonl"), digests) << stop;
    EXPECT_EQ(CheckpointStore(path / "checkpoints").read(10).digest, digest(Toy::state(10)));
  }
}

TEST(RunDirectory, FactsMayComeTwiceAndOutOfOrderButNotContradict) {
  const test::TemporaryFolder folder;
  RunDirectory directory = Toy::open(folder / "run");
  EXPECT_EQ(directory.facts(1, Toy::facts(1)), -1);  // step 0 is missing
  EXPECT_EQ(directory.facts(0, Toy::facts(0)), 0);   // line 2 waits for the digest of its state
  EXPECT_EQ(directory.facts(0, Toy::facts(0)), 0);
  EXPECT_EQ(directory.facts(2, Toy::facts(2)), 1);
  nlohmann::json other = Toy::facts(0);
  other["loss"] = std::bit_cast<uint64_t>(3.0);
  EXPECT_THROW(directory.facts(0, other), Failure);
  nlohmann::json state = Toy::facts(2);
  state["state"] = Digest{7, 7}.hex();
  EXPECT_THROW(directory.facts(2, state), Failure);
}

TEST(RunDirectory, ACheckpointWaitsForAllPartsAndForTheLedger) {
  const test::TemporaryFolder folder;
  RunDirectory directory = Toy::open(folder / "run");
  directory.facts(0, Toy::facts(0));
  EXPECT_TRUE(Toy::save(directory, 3).empty());
  // The last line needs no facts of a further step: a run may stop here.
  for (int64_t step = 1; step < 3; ++step) directory.facts(step, Toy::facts(step));
  EXPECT_EQ(directory.commit_saved(), std::vector<int64_t>{3});
  EXPECT_EQ(CheckpointStore(folder / "run" / "checkpoints").read(3).digest, digest(Toy::state(3)));
  Message failed{.kind = "saved", .step = 6, .body = {{"part", 0}, {"parts", 2}, {"error", "the disk is full"}}};
  EXPECT_TRUE(directory.saved(failed).empty());
}

TEST(RunDirectory, RefusesWhatItShould) {
  const test::TemporaryFolder folder;
  {
    RunDirectory directory = Toy::open(folder / "run");
    EXPECT_THROW(Toy::open(folder / "run", true), UsageError);  // in use
    Toy::run(directory, 0, 8);
  }
  EXPECT_THROW(Toy::open(folder / "run"), UsageError);  // holds a run

  // A checkpoint that the ledger contradicts, or does not reach, is passed over.
  const fs::path ledger = folder / "run" / "ledger.jsonl";
  const std::string text = read_file(ledger);
  size_t end = 0;
  for (int line = 0; line < 6; ++line) end = text.find('\n', end) + 1;
  replace_file(ledger, text.substr(0, end));
  {
    const RunDirectory directory = Toy::open(folder / "run", true);
    EXPECT_EQ(directory.first_step(), 3);
    EXPECT_EQ(directory.notices().size(), 2u);
  }
  flip_byte(folder / "run" / "checkpoints" / "step-3" / "manifest.json", 10);
  try {
    Toy::open(folder / "run", true);
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("no checkpoint is good"), std::string::npos) << failure.what();
  }
}

}  // namespace
}  // namespace elinvar
