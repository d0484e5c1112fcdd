// Checkpoints whose tensors several workers write in slices.
#include <gtest/gtest.h>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/checkpoint/part_stream.h"
#include "tensor/base/check.h"
#include "tensor/numerics.h"
#include "tests/elastic/sliced_state.h"
#include "tests/support/disk_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::flip_byte;
using test::message_of;
using test::sliced::counting;
using test::sliced::cut;
using test::sliced::kChunk;
using test::sliced::kStep;
using test::sliced::replicated;
using test::sliced::sharded;
using test::sliced::slice;
using test::sliced::whole;

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

}  // namespace
}  // namespace elinvar
