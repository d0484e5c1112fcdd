#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/philox.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  fs::path put(const std::string& bytes) const {
    const fs::path path = folder_ / "file";
    remove_tree(path);
    File::create(path).write(bytes);
    return path;
  }
  fs::path put(std::string header, const std::string& data) const {
    const uint64_t length = header.size();
    return put(std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
  }

  test::TemporaryFolder folder_;
};

StateDict some_state() {
  return {{"a.weight", Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3})},
          {"a.view", Tensor::from(std::vector<double>{1, 2, 3, 4}, {2, 2}).transpose(0, 1)},
          {"b", Tensor::from(std::vector<int64_t>{-1}, {})},
          {"c", Tensor::from(std::vector<uint8_t>{7, 8, 9}, {3})},
          {"d", Tensor::full({2}, 1.5, DType::bf16)},
          {"e", Tensor::zeros({0, 4}, DType::i32)}};
}

TEST_F(Safetensors, RoundTrip) {
  const StateDict state = some_state();
  const fs::path path = folder_ / "state.safetensors";
  const SafetensorsWritten written = write_safetensors(path, state, {{"format", "elinvar"}});
  const SafetensorsContents read = read_safetensors(path);
  EXPECT_EQ(digest(read.tensors), digest(state));
  EXPECT_EQ(read.metadata.at("format"), "elinvar");
  EXPECT_EQ(read.digest, written.digest);
  EXPECT_EQ(read.bytes, written.bytes);
  const std::string bytes = read_file(path);
  EXPECT_EQ(digest_bytes(bytes.data(), bytes.size()), written.digest);
  EXPECT_THROW(write_safetensors(path, state), Failure);  // exists
}

TEST_F(Safetensors, EveryTruncationIsAFailure) {
  const fs::path path = folder_ / "state.safetensors";
  write_safetensors(path, some_state());
  const std::string bytes = read_file(path);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(read_safetensors(put(bytes.substr(0, size))), Failure) << size;
  EXPECT_THROW(read_safetensors(put(bytes + "x")), Failure);
}

TEST_F(Safetensors, ChangedBytesNeverPassUnseen) {
  const fs::path path = folder_ / "state.safetensors";
  const Digest expected = write_safetensors(path, some_state()).digest;
  const std::string bytes = read_file(path);
  for (uint32_t trial = 0; trial < 2000; ++trial) {
    std::string changed = bytes;
    const Random4 r = philox(11, trial, 0, 0, 0);
    for (uint32_t i = 0; i <= r.v[3] % 3; ++i)
      changed[(r.v[0] + i * r.v[1]) % changed.size()] ^= static_cast<char>(1u << (r.v[2] % 8));
    if (changed == bytes) continue;
    try {
      EXPECT_NE(read_safetensors(put(changed)).digest, expected);
    } catch (const Failure&) {
    }
  }
}

TEST_F(Safetensors, Float16BecomesFloat32) {
  const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0x8000, 0x3555};
  const std::string bytes(reinterpret_cast<const char*>(halves), sizeof halves);
  const Tensor read =
      read_safetensors(put(R"({"a":{"dtype":"F16","shape":[8],"data_offsets":[0,16]}})", bytes)).tensors.at("a");
  const float expected[] = {1.0f, -2.0f, 0x1p-24f, -0x1.ff8p-15f, 65504.0f, INFINITY, -0.0f, 0x1.554p-2f};
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(read.span<float>()[i]), std::bit_cast<uint32_t>(expected[i])) << i;
}

TEST_F(Safetensors, MalformedHeaders) {
  const std::string eight(8, '\0');
  const char* headers[] = {
      "",
      "[]",
      "nonsense",
      R"({"a":1})",
      R"({"a":{"dtype":"F32","shape":[2]}})",
      R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]}})",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
      R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
      R"({"__metadata__":{"a":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"};
  for (const char* header : headers) EXPECT_THROW(read_safetensors(put(header, eight)), Failure) << header;
  EXPECT_THROW(read_safetensors(put(std::string(100000, '['), eight)), Failure);
  EXPECT_NO_THROW(read_safetensors(put(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight)));
}

TEST_F(Safetensors, FilesOfPyTorchGetAdvice) {
  for (const auto& [name, bytes] :
       {std::pair("zip.pth", "PK\3\4 and more"), std::pair("pickle.bin", "\x80\2 and more")}) {
    const std::string path = folder_.write(name, bytes);
    const std::string complaint = test::message_of<Failure>([&] { read_safetensors(path); });
    EXPECT_NE(complaint.find("is a file of torch.save"), std::string::npos) << complaint;
    EXPECT_NE(complaint.find("torch.load('" + path + "'"), std::string::npos) << complaint;
  }
  EXPECT_NE(test::message_of<Failure>([&] {
              read_safetensors(folder_.write("short", "seven b"));
            }).find("no safetensors file"),
            std::string::npos);
}

// A header of 640 bytes begins as a pickle does.
TEST_F(Safetensors, TheNameOfAFileSaysNothing) {
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(640, ' ');
  const uint64_t length = header.size();
  const std::string path =
      folder_.write("weights.bin", std::string(reinterpret_cast<const char*>(&length), 8) + header + "x");
  EXPECT_EQ(read_safetensors(path).tensors.size(), 1u);
}

TEST_F(Safetensors, MissingFile) { EXPECT_THROW(read_safetensors(folder_ / "absent"), Failure); }

}  // namespace
}  // namespace elinvar
