// The command `tokenize`, called as a program.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data/token_file.h"
#include "tensor/base/file.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"
#include "tools/tokenize/commands.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

// Returns a tokenizer.json of the golden vocabulary with these special tokens, from 1000 on.
std::string tokenizer_with(const TemporaryFolder& folder, const std::vector<const char*>& specials) {
  Json json = Json::parse(read_file(std::filesystem::path(ELINVAR_SOURCE_DIR) / "tests/golden/tokenizer.json"));
  json["model"]["vocab"].erase("<|endoftext|>");
  json["added_tokens"] = Json::array();
  for (const char* name : specials)
    json["added_tokens"].push_back({{"id", 1000 + json["added_tokens"].size()}, {"content", name}, {"special", true}});
  return folder.write("tokenizer.json", json.dump());
}

TEST(TokenizeEncode, PartsDocumentsByTheSpecialTokenThatThereIs) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", "to be");
  const auto first_token = [&](const std::string& tokenizer, const std::string& separator) {
    const TemporaryFolder out;
    encode({.documents = {.inputs = {text}},
            .tokenizer = tokenizer,
            .separator = separator,
            .out = out.path(),
            .validation = 0});
    int32_t token = 0;
    TokenFile(out / "train_000000.bin").read(0, 1, &token);
    return token;
  };
  const std::string llama3 = tokenizer_with(folder, {"<|begin_of_text|>", "<|end_of_text|>"});
  EXPECT_EQ(first_token(llama3, ""), 1001);
  EXPECT_EQ(first_token(llama3, "<|begin_of_text|>"), 1000);
  const std::string complaint = message_of<UsageError>([&] { first_token(llama3, "<|end|>"); });
  EXPECT_NE(complaint.find("no special token <|end|>"), std::string::npos) << complaint;
  EXPECT_NE(complaint.find("--separator: it has <|begin_of_text|>, <|end_of_text|>"), std::string::npos) << complaint;
  EXPECT_EQ(first_token(tokenizer_with(folder, {"<|endoftext|>"}), ""), 1000);
  EXPECT_NE(message_of<UsageError>([&] {
              first_token(tokenizer_with(folder, {}), "");
            }).find("no special token <|endoftext|> or <|end_of_text|>"),
            std::string::npos);
}

TEST(TokenizeEncode, SpecialTokensInDocumentsAreAChoice) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", "to<|endoftext|>be");
  const auto count_of_ends = [&](bool special) {
    const TemporaryFolder out;
    encode({.documents = {.inputs = {text}},
            .tokenizer = tokenizer_with(folder, {"<|endoftext|>"}),
            .separator = "",
            .special_tokens = special,
            .out = out.path(),
            .validation = 0});
    const TokenFile file(out / "train_000000.bin");
    std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
    file.read(0, file.size(), tokens.data());
    return std::ranges::count(tokens, 1000);
  };
  EXPECT_EQ(count_of_ends(false), 1);  // the separator
  EXPECT_EQ(count_of_ends(true), 2);
}

TEST(TokenizeEncode, RefusesWhatIsNoText) {
  const TemporaryFolder folder;
  folder.write("files/a.txt", "to be\xFF");  // a stray byte is a token
  folder.write("files/b.jpg", std::string("\xFF\xD8\xFF\xE0\0\x10JFIF", 10));
  const TemporaryFolder out;
  EncodeCommand command{.documents = {.inputs = {folder / "files"}},
                        .tokenizer = tokenizer_with(folder, {"<|endoftext|>"}),
                        .separator = "",
                        .out = out.path(),
                        .validation = 0};
  const std::string complaint = message_of<Failure>([&] { encode(command); });
  EXPECT_NE(complaint.find("b.jpg is no UTF-8 text"), std::string::npos) << complaint;
  command.documents.include = {"*.txt"};
  EXPECT_EQ(encode(command), 0);
}

TEST(TokenizeLearn, KnowsBeforeWhetherItCanWrite) {
  const TemporaryFolder folder;
  const LearnCommand command{.documents = {.inputs = {folder / "missing.txt"}}, .out = folder.path(), .training = {}};
  EXPECT_NE(message_of<UsageError>([&] { learn(command); }).find("is a folder; name the file to write"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
