// Checkpoints whose tensors several workers write in slices.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/part_stream.h"
#include "elastic/checkpoint/state_copier.h"
#include "elastic/checkpoint/state_parts.h"
#include "elastic/run/run_directory.h"
#include "tensor/base/check.h"
#include "tensor/numerics.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::flip_byte;
using test::message_of;

constexpr int64_t kStep = 3;
constexpr int64_t kChunk = kChunkElements;

Tensor counting(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), first);
  return Tensor::from(values, shape);
}

// What is replicated on all workers, and the tensors that they hold in slices: smaller than a chunk, of exactly one,
// of several, and with a rest.
StateDict replicated() {
  return {{"model.w", counting({3, 70000}, 1)},
          {"optimizer.x.n", counting({5}, 2)},
          {"step", Tensor::from(std::vector<int64_t>{kStep}, {})}};
}
StateDict sharded() {
  return {{"optimizer.w.m", counting({3, 70000}, 3)},
          {"optimizer.w.v", counting({512, 512}, 4)},
          {"optimizer.x.m", counting({1024, 3, 256}, 5)},
          {"optimizer.x.v", counting({2 * kChunk + 77}, 6)}};
}
StateDict whole() {
  StateDict state = replicated();
  state.merge(sharded());
  return state;
}

StateSlice slice(const std::string& name, const Tensor& tensor, int64_t begin, int64_t end) {
  return {name, tensor.shape(), begin, end, tensor.reshape({-1}).slice(0, begin, end)};
}

// Cuts each sharded tensor at random boundaries of chunks, and gives each slice to one of `parts` at random.
std::vector<std::vector<StateSlice>> cut(int parts, std::mt19937& random) {
  std::vector<std::vector<StateSlice>> slices(static_cast<size_t>(parts));
  for (const auto& [name, tensor] : sharded())
    for (int64_t begin = 0, end = 0; begin < tensor.numel(); begin = end) {
      end = std::min(tensor.numel(), begin + static_cast<int64_t>(1 + random() % 3) * kChunk);
      slices[random() % slices.size()].push_back(slice(name, tensor, begin, end));
    }
  return slices;
}

// Writes and commits a checkpoint.
void write(const fs::path& path, const std::vector<std::vector<StateSlice>>& slices, bool streamed = false) {
  CheckpointStore store(path);
  std::vector<CheckpointPart> written;
  const int parts = static_cast<int>(slices.size());
  for (int part = 0; part < parts; ++part) {
    const StateDict tensors = part_of(replicated(), part, parts);
    const std::vector<StateSlice>& mine = slices[static_cast<size_t>(part)];
    if (!streamed) {
      written.push_back(store.write_part(kStep, part_file(part, parts), tensors, mine));
      continue;
    }
    PartReceiver receiver(store);
    const auto send = [&](const messages::FilePiece& piece, int64_t) {
      EXPECT_EQ(receiver.take(7, kStep, piece).error, "");
    };
    written.push_back(send_part(part, parts, tensors, send, mine));
    const messages::Saved saved{
        .part = part, .parts = parts, .bytes = written.back().bytes, .digest = written.back().digest};
    EXPECT_EQ(receiver.finish(7, kStep, saved).error, "");
  }
  store.commit(kStep, written, digest(whole()));
}

std::string manifest_of(const fs::path& path) { return read_file(path / "step-3" / "manifest.json"); }

TEST(SlicedCheckpoint, WithoutSlicesTheFilesAreThoseOfFormat1) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "c");
  const StateDict state = {{"model.weight", counting({40, 50}, 1)},
                           {"optimizer.weight.m", counting({40, 50}, -7)},
                           {"step", Tensor::from(std::vector<int64_t>{5}, {})}};
  store.write(5, state, digest(state));
  const std::string part = read_file(folder / "c" / "step-5" / "part-0.safetensors");
  EXPECT_EQ(digest_bytes(part.data(), part.size()).hex(), "852e919ecdf576047e0a9987249cceb5");
  EXPECT_EQ(read_file(folder / "c" / "step-5" / "manifest.json"), fmt::format(R"({{
  "format": 1,
  "numerics_version": {},
  "parts": [
    {{
      "bytes": 16232,
      "digest": "852e919ecdf576047e0a9987249cceb5",
      "file": "part-0.safetensors"
    }}
  ],
  "state": "215b5a3aac49860dc81f44b065c07788",
  "step": 5
}}
)",
                                                                              kNumericsVersion));
  const CheckpointPart streamed = send_part(0, 1, state, [](const messages::FilePiece&, int64_t) {});
  EXPECT_EQ(streamed.digest.hex(), "852e919ecdf576047e0a9987249cceb5");
  EXPECT_FALSE(streamed.sliced);
}

TEST(SlicedCheckpoint, AnyCutReadsAsTheWholeState) {
  const Digest expected = digest(whole());
  std::mt19937 random(5);
  for (int parts = 1; parts <= 4; ++parts)
    for (const bool streamed : {false, true}) {
      const test::TemporaryFolder folder;
      const fs::path path = folder / "c";
      write(path, cut(parts, random), streamed);
      EXPECT_NE(manifest_of(path).find("\"format\": 2"), std::string::npos);
      const Checkpoint read = CheckpointStore(path).read(kStep);
      EXPECT_EQ(read.digest, expected);
      EXPECT_EQ(digest(read.state), expected);
      EXPECT_EQ(read.state.at("optimizer.x.m").shape(), (Shape{1024, 3, 256}));
      const CheckpointReader reader = CheckpointStore(path).open(kStep);
      EXPECT_EQ(reader.digest(), expected);
      EXPECT_NO_THROW(reader.verify_state());
    }
}

// Other programs see a slice as a tensor of one dimension.
TEST(SlicedCheckpoint, ItsPartsAreOrdinaryFiles) {
  const test::TemporaryFolder folder;
  std::mt19937 random(1);
  const Tensor v = sharded().at("optimizer.x.v");
  std::vector<StateSlice> slices = cut(1, random)[0];
  std::erase_if(slices, [](const StateSlice& each) { return each.tensor == "optimizer.x.v"; });
  slices.push_back(slice("optimizer.x.v", v, 0, kChunk));
  slices.push_back(slice("optimizer.x.v", v, kChunk, v.numel()));
  write(folder / "c", {slices});
  const SafetensorsContents file = read_safetensors(folder / "c" / "step-3" / "part-0-of-1.safetensors");
  EXPECT_EQ(digest(file.tensors.at("optimizer.x.v[262144:524365]")), digest(slices.back().values));
  EXPECT_EQ(file.tensors.at("model.w").shape(), (Shape{3, 70000}));
  EXPECT_NE(file.metadata.at("whole_shapes").find(R"("optimizer.x.v":[524365])"), std::string::npos);
}

// A part as some other program may have written it.
struct OddPart {
  StateDict tensors;
  std::map<std::string, std::string> metadata;
};

std::string refusal_of(const std::vector<OddPart>& parts) {
  const test::TemporaryFolder folder;
  CheckpointStore store(folder / "c");
  std::vector<CheckpointPart> written;
  for (const OddPart& part : parts) {
    PartFile file = store.create_part(kStep, fmt::format("part-{}.safetensors", written.size()));
    stream_safetensors(part.tensors, part.metadata,
                       [&](const auto&, const void* bytes, size_t count) { file.write(bytes, count); });
    written.push_back(file.finish());
    written.back().sliced = true;
  }
  store.commit(kStep, written, {});
  const std::string read = message_of<Failure>([&] { (void)store.read(kStep); });
  EXPECT_EQ(message_of<Failure>([&] { (void)store.open(kStep); }), read);
  return read;
}

TEST(SlicedCheckpoint, WhatIsNotThereOnceIsRefusedByName) {
  const auto part = [](const std::string& shapes, std::initializer_list<std::pair<int64_t, int64_t>> ranges,
                       StateDict tensors = {}) {
    for (const auto& [begin, end] : ranges) tensors.emplace(slice_name("t", begin, end), Tensor::zeros({end - begin}));
    return OddPart{std::move(tensors), {{"whole_shapes", shapes}}};
  };
  const std::string shape = R"({"t":[3,262145]})";  // four chunks, the last of 3 elements
  const int64_t end = 3 * (kChunk + 1);
  const auto expect = [](const std::string& reason, const std::vector<OddPart>& parts) {
    const std::string refusal = refusal_of(parts);
    EXPECT_NE(refusal.find("step-3 cannot be used: "), std::string::npos) << refusal;
    EXPECT_NE(refusal.find(reason), std::string::npos) << refusal;
  };
  expect("t[0:262144] is missing", {part(shape, {{kChunk, end}})});
  expect("t[262144:524288] is missing", {part(shape, {{0, kChunk}}), part(shape, {{2 * kChunk, end}})});
  expect("t[524288:786435] is missing", {part(shape, {{0, 2 * kChunk}})});
  expect("t[262144:524288] is there twice", {part(shape, {{0, 2 * kChunk}}), part(shape, {{kChunk, end}})});
  expect("t[0:786435] is there twice", {part(shape, {{0, end}}), part(shape, {{0, end}})});
  expect("t[0:262144] is there twice", {part(shape, {{0, end}}), part(shape, {{0, kChunk}})});
  expect("t[0:262145] is no slice of a tensor of shape (3, 262145)", {part(shape, {{0, kChunk + 1}})});
  expect("t[7:786435] is no slice", {part(shape, {{7, end}})});
  expect("t[0:1048576] is no slice", {part(shape, {{0, 4 * kChunk}})});
  expect("t[0:262144] belongs to a tensor of shape (3, 262145), t[262144:786435] to one of shape (786435,)",
         {part(shape, {{0, kChunk}}), part(R"({"t":[786435]})", {{kChunk, end}})});
  expect("'t' is there whole and in slices", {part(shape, {{0, end}}), part(shape, {}, {{"t", Tensor::zeros({2})}})});
  expect("'t' is there whole and in slices", {part(shape, {}, {{"t", Tensor::zeros({2})}}), part(shape, {{0, end}})});
  expect("'a' is there twice", {{{{"a", Tensor::zeros({2})}}, {}}, {{{"a", Tensor::zeros({2})}}, {}}});
  expect("t[0:786435] is not of type float32", {part(shape, {}, {{"t[0:786435]", Tensor::zeros({end}, DType::i32)}})});
  expect("t[0:786435] has shape (3, 262145)", {part(shape, {}, {{"t[0:786435]", Tensor::zeros({3, kChunk + 1})}})});
  for (const char* odd : {"[]", "{", R"({"t":3})", R"({"t":[3.5]})", R"({"t":[-1]})", R"({"t":[1,1,1,1,1,1,1,1,1]})",
                          R"({"t":[4611686018427387904,4]})"})
    EXPECT_NE(refusal_of({part(odd, {{0, end}})}).find("shape"), std::string::npos) << odd;
}

TEST(SlicedCheckpoint, AnyDamageIsSeen) {
  const test::TemporaryFolder folder;
  std::mt19937 random(3);
  write(folder / "c", cut(2, random));
  const CheckpointStore store(folder / "c");
  for (const char* part : {"part-0-of-2.safetensors", "part-1-of-2.safetensors"}) {
    const fs::path path = folder / "c" / "step-3" / part;
    for (const size_t at : {size_t{0}, size_t{20}, size_t{300}, fs::file_size(path) - 1, fs::file_size(path) / 2}) {
      flip_byte(path, at);
      EXPECT_THROW((void)store.read(kStep), Failure) << at;
      EXPECT_THROW((void)store.open(kStep), Failure) << at;
      flip_byte(path, at);
    }
    EXPECT_NO_THROW((void)store.open(kStep));
  }
  const std::string manifest = manifest_of(folder / "c");
  for (const char* format : {"1", "3"}) {
    std::string other = manifest;
    other.replace(other.find("\"format\": 2"), 11, fmt::format("\"format\": {}", format));
    replace_file(folder / "c" / "step-3" / "manifest.json", other);
    EXPECT_THROW((void)store.read(kStep), Failure) << format;
  }
  fs::remove(folder / "c" / "step-3" / "manifest.json");
  EXPECT_THROW((void)store.open(kStep), Failure);
}

TEST(SlicedCheckpoint, AReaderReturnsAnyElementsOfEitherFormat) {
  std::mt19937 random(11);
  const StateDict state = whole();
  for (const bool sliced : {false, true}) {
    const test::TemporaryFolder folder;
    if (sliced) write(folder / "c", cut(3, random));
    else CheckpointStore(folder / "c").write(kStep, state, digest(state));
    const CheckpointReader reader = CheckpointStore(folder / "c").open(kStep);
    EXPECT_EQ(reader.step(), kStep);
    EXPECT_EQ(reader.tensors().size(), state.size());
    EXPECT_NO_THROW(reader.verify_state());

    EXPECT_EQ(digest(reader.read({"model.", "step", "optimizer.x.n"})), digest(replicated()));
    EXPECT_EQ(digest(reader.read({""})), digest(state));
    EXPECT_TRUE(reader.read({"other."}).empty());
    for (const auto& [name, tensor] : state)
      for (int trial = 0; trial < 4; ++trial) {
        const int64_t a = static_cast<int64_t>(random()) % (tensor.numel() + 1),
                      b = static_cast<int64_t>(random()) % (tensor.numel() + 1);
        const Tensor elements = tensor.reshape({-1}).slice(0, std::min(a, b), std::max(a, b));
        EXPECT_EQ(digest(reader.read_elements(name, std::min(a, b), std::max(a, b))), digest(elements)) << name;
      }
    for (const std::vector<StateSlice>& of_part : cut(2, random))
      for (const StateSlice& each : of_part)
        EXPECT_EQ(digest(reader.read_slice(each.tensor, each.begin, each.end).values),
                  digest(slice(each.tensor, state.at(each.tensor), each.begin, each.end).values));

    EXPECT_NE(message_of<Failure>([&] { (void)reader.read_slice("optimizer.w.m", 5, 9); }), "");
    EXPECT_NE(message_of<Failure>([&] { (void)reader.read_slice("step", 0, 1); }), "");
    EXPECT_NE(message_of<Failure>([&] { (void)reader.read_elements("step", 0, 2); }), "");
    EXPECT_NE(message_of<Failure>([&] { (void)reader.read_elements("other", 0, 1); }), "");
  }
}

TEST(SlicedCheckpoint, TheStatesDigestIsVerifiedInPieces) {
  const test::TemporaryFolder folder;
  const StateDict state = {
      {"a", counting({66 * kChunk + 5}, 1)}, {"b", Tensor::full({3, 5}, 1, DType::bf16)}, {"c", Tensor::zeros({0, 4})}};
  CheckpointStore store(folder / "c");
  store.write(1, state, digest(state));
  EXPECT_NO_THROW(store.open(1).verify_state());
  const CheckpointPart part = store.write_part(2, "part-0.safetensors", state);
  store.commit(2, {part}, digest(whole()));
  const CheckpointReader other = store.open(2);
  EXPECT_EQ(message_of<Failure>([&] { other.verify_state(); }), "the digest of its state is wrong");
}

TEST(SlicedCheckpoint, WhatAWorkerMustNotWriteIsRefused) {
  const Tensor t = counting({kChunk + 5}, 0);
  const StateSlice good = slice("t", t, 0, kChunk);
  EXPECT_NO_THROW((void)contents_of({}, std::vector{good}));
  EXPECT_THROW((void)contents_of({{"t", t}}, std::vector{good}), UsageError);
  EXPECT_THROW((void)contents_of({{"t[262144:262149]", t}}, std::vector{good}), UsageError);
  EXPECT_NO_THROW((void)contents_of({{"u[262144:262149]", t}}, std::vector{good}));
  EXPECT_THROW((void)contents_of({}, std::vector{good, good}), UsageError);
  StateSlice other = good;
  other.whole = {kChunk + 6};
  EXPECT_THROW((void)contents_of({}, std::vector{good, other}), UsageError);
  other = good;
  other.end = 5;
  EXPECT_THROW((void)contents_of({}, std::vector{other}), Failure);
  other = good;
  other.values = other.values.reshape({512, 512});
  EXPECT_THROW((void)contents_of({}, std::vector{other}), Failure);
  other.values = good.values.to(DType::f64);
  EXPECT_THROW((void)contents_of({}, std::vector{other}), Failure);
}

std::vector<SliceDigests> all_digests(const std::vector<std::vector<StateSlice>>& slices) {
  std::vector<SliceDigests> digests;
  for (const std::vector<StateSlice>& of_part : slices)
    for (SliceDigests& each : slice_digests(of_part)) digests.push_back(std::move(each));
  return digests;
}

TEST(SlicedState, ItsDigestIsThatOfTheWhole) {
  std::mt19937 random(2);
  const StateSum expected = state_sum(digests_of(whole()));
  EXPECT_EQ(expected.digest, digest(whole()));
  for (int workers = 1; workers <= 4; ++workers) {
    std::vector<SliceDigests> slices = all_digests(cut(workers, random));
    std::shuffle(slices.begin(), slices.end(), random);
    const StateSum sum = state_sum(digests_of(replicated()), slices),
                   from_text = state_sum(to_text(digests_of(replicated())), slices);
    EXPECT_EQ(sum.digest, expected.digest);
    EXPECT_EQ(sum.parts, expected.parts);
    EXPECT_EQ(from_text.digest, expected.digest);
    EXPECT_EQ(from_text.parts, expected.parts);
  }
  EXPECT_EQ(state_sum(digests_of(whole()), {}).digest, expected.digest);
}

TEST(SlicedState, ChunksThatAreMissingOrDoubledAreNamed) {
  const SliceDigests a{.tensor = "t", .whole = {3, kChunk}, .begin = 0, .chunks = {{1, 1}}},
      b{.tensor = "t", .whole = {3, kChunk}, .begin = kChunk, .chunks = {{2, 2}, {3, 3}}};
  const auto refusal = [](const std::vector<SliceDigests>& slices, const TensorDigests& of_others = {}) {
    return message_of<Failure>([&] { (void)state_sum(of_others, slices); });
  };
  EXPECT_EQ(refusal({b, a}), "");
  EXPECT_EQ(refusal({a}), "[state] t[262144:786432] is missing");
  EXPECT_EQ(refusal({b}), "[state] t[0:262144] is missing");
  EXPECT_EQ(refusal({a, b, a}), "[state] t[0:262144] is there twice");
  EXPECT_EQ(refusal({a, b}, {{"t", {}}}), "[state] 't' is there whole and in slices");
  const auto spoiled = [&](auto spoil) {
    SliceDigests other = b;
    spoil(other);
    return refusal({a, other});
  };
  EXPECT_NE(spoiled([](SliceDigests& s) { s.chunks.clear(); }).find("is no slice"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.chunks.push_back({}); }).find("exceeds its shape"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.begin = INT64_MAX; }).find("exceeds its shape"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.begin = -kChunk; }).find("exceeds its shape"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.begin = 1; }).find("is no slice"), std::string::npos);
  EXPECT_NE(spoiled([](SliceDigests& s) { s.whole = {3 * kChunk}; }).find("belongs to"), std::string::npos);
}

TEST(SlicedState, DigestsOfSlicesTravelInMessages) {
  std::mt19937 random(8);
  const messages::Saved sent{.slices = all_digests(cut(1, random))};
  const Packet packet = packet_of({.payload = sent}, 1);
  const Message back = message_of(packet);
  const std::vector<SliceDigests>& slices = back.as<messages::Saved>()->slices;
  EXPECT_EQ(state_sum(digests_of(replicated()), slices).digest, digest(whole()));
  for (const nlohmann::json& odd : {nlohmann::json{-1}, nlohmann::json{INT64_MAX, 2}, nlohmann::json("x"),
                                    nlohmann::json(std::vector<int>(9, 1))}) {
    Packet other = packet;
    other.body["slices"][0]["whole"] = odd;
    EXPECT_NE(message_of<UsageError>([&] { (void)message_of(other); }).find("slices.whole"), std::string::npos) << odd;
  }
}

// A copier saves its part in the run directory, or streams it: the same file, with the digests of its slices.
TEST(StateCopier, SavesSlices) {
  std::mt19937 random(9);
  const std::vector<StateSlice> slices = cut(2, random)[0];
  const test::TemporaryFolder folder;
  std::vector<messages::Saved> saved;
  std::mutex mutex;
  for (const bool streamed : {false, true}) {
    StateCopier* at = nullptr;
    StateCopier copier({.state = [](const StatePart&) { return replicated(); },
                        .directory = [&] { return streamed ? fs::path() : fs::path(folder.path()); },
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
    copier.add({.step = kStep, .part = 0, .parts = 2, .attested = true, .buckets = {0}});
    copier.finish();
  }
  ASSERT_EQ(saved.size(), 2u);
  const StateDict tensors = part_of(replicated(), 0, 2);
  for (const messages::Saved& each : saved) {
    EXPECT_EQ(each.error, "");
    EXPECT_EQ(each.digests, to_text(digests_of(tensors)));
    ASSERT_EQ(each.slices.size(), slices.size());
    for (size_t i = 0; i < slices.size(); ++i) {
      EXPECT_EQ(each.slices[i].tensor, slices[i].tensor);
      EXPECT_EQ(each.slices[i].chunks, slice_digests({&slices[i], 1})[0].chunks);
    }
    EXPECT_EQ(each.state, digest(replicated()));
    EXPECT_EQ(each.digest, saved[0].digest);
  }
  EXPECT_EQ(CheckpointStore(folder / "again").write_part(kStep, "part-0-of-2.safetensors", tensors, slices).digest,
            saved[0].digest);
}

// Two workers report their parts of the state after three updates.
struct CommittedInSlices : testing::Test {
  CommittedInSlices() {
    directory.facts().begin({}, {}, 10);
    for (int64_t step = 0; step < kStep; ++step)
      directory.facts().record({StepFacts{
          .step = step, .update = UpdateFacts{.batch = {1, static_cast<uint64_t>(step)}}, .report = {.lr = 0.5}}});
  }
  // The whole state is agreed on in the trailer of the step that follows.
  void agree(const StateDict& state) {
    StepFacts next{.step = kStep, .update = UpdateFacts{.batch = {1, 3}}, .report = {.lr = 0.5}};
    const StateSum sum = state_sum(digests_of(state));
    next.state = sum.digest;
    next.state_digests = sum.parts;
    directory.facts().record({next});
  }
  std::vector<CheckpointCommitter::Settled> save(const std::vector<std::vector<StateSlice>>& slices,
                                                 const std::optional<Digest>& attested = {}) {
    std::vector<CheckpointCommitter::Settled> settled;
    for (int part = 0; part < 2; ++part) {
      const StateDict mine = part_of(replicated(), part, 2);
      const std::vector<StateSlice>& held = slices[static_cast<size_t>(part)];
      const CheckpointPart written = store.write_part(kStep, part_file(part, 2), mine, held);
      const messages::Saved saved{.part = part,
                                  .parts = 2,
                                  .file = written.file,
                                  .bytes = written.bytes,
                                  .digest = written.digest,
                                  .digests = to_text(digests_of(mine)),
                                  .slices = slice_digests(held),
                                  .state = attested};
      settled = directory.checkpoints().saved(kStep, saved);
    }
    return settled;
  }
  using Settled = std::vector<CheckpointCommitter::Settled>;

  test::TemporaryFolder folder;
  std::mt19937 random{4};
  RunDirectory directory{{.path = folder / "run", .state_digest_every = 3, .checkpoint_every = 3, .keep = 2},
                         {.run = 1}};
  CheckpointStore store{folder / "run" / "checkpoints"};
};

TEST_F(CommittedInSlices, OnceTheStateIsAgreed) {
  EXPECT_EQ(save(cut(2, random)), Settled());
  agree(whole());
  EXPECT_EQ(directory.checkpoints().commit(), (Settled{{kStep, ""}}));
  EXPECT_EQ(digest(store.read(kStep).state), digest(whole()));
  EXPECT_NE(manifest_of(folder / "run" / "checkpoints").find("\"format\": 2"), std::string::npos);
}

TEST_F(CommittedInSlices, WhereTheRunStopsTheWorkersAttestWhatTheyHoldWhole) {
  EXPECT_EQ(save(cut(2, random), digest(replicated())), (Settled{{kStep, ""}}));
  EXPECT_EQ(store.read(kStep).digest, digest(whole()));
  EXPECT_EQ(directory.facts().line(kStep).state, digest(whole()));
}

TEST_F(CommittedInSlices, NotIfTheWorkersHoldSomethingElseWhole) {
  EXPECT_EQ(save(cut(2, random), digest(sharded())),
            (Settled{{kStep, "what was saved is not the state that the workers agree on"}}));
}

TEST_F(CommittedInSlices, NotIfTheStateIsAnother) {
  agree(replicated());
  EXPECT_EQ(save(cut(2, random)), (Settled{{kStep, "what was saved is not the state that the workers agree on"}}));
}

TEST_F(CommittedInSlices, NotIfASliceIsMissingOrThereTwice) {
  std::vector<std::vector<StateSlice>> slices = cut(2, random);
  std::vector<StateSlice>& some = slices[slices[0].empty() ? 1 : 0];
  const StateSlice last = some.back();
  const std::string name = slice_name(last.tensor, last.begin, last.end);
  some.pop_back();
  agree(whole());
  EXPECT_EQ(save(slices), (Settled{{kStep, "[state] " + name + " is missing"}}));
  for (std::vector<StateSlice>& of_part : slices) of_part.push_back(last);
  EXPECT_EQ(save(slices), (Settled{{kStep, "[state] " + name + " is there twice"}}));
  slices[0].pop_back();
  EXPECT_EQ(save(slices), (Settled{{kStep, ""}}));
}

}  // namespace
}  // namespace elinvar
