#include "tensor/base/json.h"

#include <gtest/gtest.h>

#include <cstring>

#include "data/bpe.h"
#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/ledger.h"
#include "elastic/ledger/sealed_line.h"
#include "elastic/run/generation_store.h"
#include "models/published.h"
#include "tensor/base/check.h"
#include "tensor/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

// Returns nested arrays or objects.
std::string nested(int depth, bool objects = false) {
  std::string text, end;
  for (int i = 0; i < depth; ++i) {
    text += objects ? "{\"a\":" : "[";
    end += objects ? '}' : ']';
  }
  return text + "1" + end;
}

TEST(Json, IsReadUpToADepth) {
  EXPECT_TRUE(parse_json(nested(kMostNesting)).is_array());
  EXPECT_TRUE(parse_json(nested(kMostNesting, true)).is_object());
  EXPECT_TRUE(parse_json(nested(kMostNesting + 1)).is_discarded());
  EXPECT_TRUE(parse_json("[\"" + std::string(1000, '[') + "\\\"[\"]").is_array());
  for (const char* text : {"", "{", "[1,]", "\"\xFF\""}) EXPECT_TRUE(parse_json(text).is_discarded()) << text;
}

TEST(Json, OfAFileIsAnObject) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_json_object(folder.write("a", "{\"b\": 3}")).at("b"), 3);
  const std::string empty = folder.write("empty", ""), cut = folder.write("cut", "{\"b\":"),
                    list = folder.write("list", "[]");
  EXPECT_EQ(message_of<Failure>([&] { read_json_object(empty); }), empty + " is empty");
  for (const std::string& path : {cut, list})
    EXPECT_EQ(message_of<Failure>([&] { read_json_object(path); }), path + " is no JSON object");
}

// Every reader of JSON from outside, with a depth at which recursion would exhaust the stack.
TEST(Json, NoReaderGoesDeeperThanItsStack) {
  const TemporaryFolder folder;
  for (const bool objects : {false, true}) {
    const std::string deep = nested(200000, objects), within = "{\"model\":" + deep + ",\"a\":" + deep + "}";
    for (const std::string& text : {deep, within}) {
      EXPECT_NE(message_of<Failure>([&] { Bpe::load(folder.write("tokenizer.json", text)); }), "");
      EXPECT_NE(message_of<Failure>([&] { read_published(folder.write("model.safetensors.index.json", text)); }), "");
      std::string bytes(8, '\0');
      const uint64_t length = text.size();
      std::memcpy(bytes.data(), &length, sizeof length);
      EXPECT_NE(message_of<Failure>([&] { read_safetensors(folder.write("a.safetensors", bytes + text)); }), "");
      EXPECT_NE(message_of<Failure>([&] { (void)LedgerLine::parse(sealed(within)); }), "");
      folder.write("checkpoints/step-1/manifest.json", text);
      EXPECT_NE(message_of<Failure>([&] { (void)CheckpointStore(folder / "checkpoints").read(1); }), "");
      EXPECT_EQ(CheckpointStore(folder / "checkpoints").manifest_digest(1), std::nullopt);
      folder.write("generations/1.json", text);
      EXPECT_EQ(message_of<Failure>([&] {
                  (void)GenerationStore(folder.path()).newest();
                }).find(folder / "generations/1.json"),
                0u);
    }
  }
}

}  // namespace
}  // namespace elinvar::test
