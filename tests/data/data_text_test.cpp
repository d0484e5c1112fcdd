#include <gtest/gtest.h>

#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "data/bpe.h"
#include "data/dataset.h"
#include "data/token_file.h"
#include "tensor/base/check.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

struct Window {
  std::vector<int32_t> input;
  std::vector<int64_t> target;
};

Window window(const Dataset& dataset, int64_t index, const Draw& draw = {}) {
  const auto n = static_cast<size_t>(dataset.input_shape().numel());
  Window w{std::vector<int32_t>(n), std::vector<int64_t>(n)};
  dataset.read(index, draw, {w.input.data(), w.target.data()});
  return w;
}

std::string symbols_of(const Dataset& dataset) {
  return dynamic_cast<const CharacterVocabulary&>(*dataset.vocabulary()).symbols();
}

std::string numbered(int64_t n) {
  std::string text;
  for (int64_t i = 0; i < n; ++i) text += static_cast<char>(i % 251);
  return text;
}

TEST(Vocabulary, BytesAreThemselves) {
  const ByteVocabulary v;
  const std::string text("a\0\xff", 3);
  EXPECT_EQ(v.size(), 256);
  EXPECT_EQ(v.encode(text), (std::vector<int32_t>{97, 0, 255}));
  EXPECT_EQ(v.decode_all(v.encode(text)), text);
}

TEST(Vocabulary, CharactersAreSortedCodePoints) {
  const std::string text = "b€a\U0001F600äab\n";
  const CharacterVocabulary v(text);
  EXPECT_EQ(v.symbols(), "\nabä€\U0001F600");
  EXPECT_EQ(v.size(), 6);
  EXPECT_EQ(v.encode("ab€"), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(v.decode_all(v.encode(text)), text);
  EXPECT_EQ(CharacterVocabulary(v.symbols()).symbols(), v.symbols());
  EXPECT_NE(message_of<UsageError>([&] { v.encode("ax"); }).find("'x' at byte 1 is none of the 6 symbols"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { v.decode(6); }).find("outside the vocabulary"), std::string::npos);
}

// Hugging Face's `tokenizers` read these files: tools/peers/published.py compares the tokens.
TEST(Vocabulary, AreWrittenAsTokenizers) {
  const TemporaryFolder folder;
  const ByteVocabulary bytes;
  folder.write("tokenizer.json", bytes.tokenizer_json());
  const auto bpe = Bpe::load(folder.path());
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(bpe->size(), 256);
  EXPECT_EQ(bpe->encode(all + "<|endoftext|>"), bytes.encode(all + "<|endoftext|>"));

  const std::string text = "b\n\"a\U0001F600";
  const CharacterVocabulary characters(text);
  const auto json = nlohmann::json::parse(characters.tokenizer_json());
  EXPECT_EQ(json["model"]["type"], "WordLevel");
  EXPECT_EQ(json["model"]["vocab"].size(), 5u);
  for (const auto& [symbol, token] : json["model"]["vocab"].items())
    EXPECT_EQ(characters.encode(symbol), std::vector<int32_t>{token.get<int32_t>()});
}

TEST(Vocabulary, RefusesMalformedUtf8) {
  for (const char* bad : {"ok\x80", "ok\xC3", "ok\xC0\xAF", "ok\xE0\x80\x80", "ok\xED\xA0\x80", "ok\xF4\x90\x80\x80",
                          "ok\xFF", "ok\xE2\x82z"})
    EXPECT_NE(message_of<Failure>([&] { (void)CharacterVocabulary(bad); }).find("at byte 2"), std::string::npos) << bad;
}

TEST(Text, ValidationIsTheLastTenthInFixedWindows) {
  const TemporaryFolder folder;
  const std::string text = numbered(1000);
  const DataConfig config{.kind = "text", .path = folder.write("a.txt", text), .context = 16};
  const auto train = open_dataset(config, Split::train), validation = open_dataset(config, Split::validation);
  EXPECT_EQ(train->size(), 55);      // 900 tokens: one window less, so that the first can begin anywhere in 16 tokens
  EXPECT_EQ(validation->size(), 6);  // 100 tokens, of which 97 are used
  EXPECT_EQ(validation->classes(), 256);
  for (int64_t i = 0; i < 6; ++i) {
    const Window w = window(*validation, i);
    for (size_t t = 0; t < 16; ++t) {
      const size_t at = 900 + static_cast<size_t>(i) * 16 + t;
      ASSERT_EQ(w.input[t], static_cast<unsigned char>(text[at]));
      ASSERT_EQ(w.target[t], static_cast<unsigned char>(text[at + 1]));
    }
  }
}

TEST(Text, TrainingWindowsBeginElsewhereInEveryEpoch) {
  const TemporaryFolder folder;
  const auto train =
      open_dataset({.kind = "text", .path = folder.write("a.txt", numbered(200)), .context = 16}, Split::train);
  std::set<int32_t> starts;
  for (int64_t epoch = 0; epoch < 200; ++epoch) {
    const Draw draw{.seed = 1, .epoch = epoch, .augment = true};
    const int32_t start = window(*train, 0, draw).input[0];
    starts.insert(start);
    for (int64_t i = 0; i < train->size(); ++i) {
      const Window w = window(*train, i, draw);
      ASSERT_EQ(w.input[0], start + 16 * i);
      ASSERT_EQ(w.target[15], start + 16 * i + 16);
      ASSERT_LT(w.target[15], 180);
    }
  }
  EXPECT_EQ(starts.size(), 16u);
  EXPECT_EQ(*starts.begin(), 0);
}

TEST(Text, AFolderIsReadInTheOrderOfItsNames) {
  const TemporaryFolder folder;
  folder.write("b/z.cpp", "three ");
  folder.write("b.cpp", "two ");
  folder.write("a.h", "one ");
  folder.write("a.o", "object ");
  folder.write("build/x.cpp", "built ");
  folder.write(".git/x.cpp", "hidden ");
  const auto dataset = open_dataset({.kind = "text",
                                     .path = folder.path(),
                                     .validation_fraction = 0.01,
                                     .tokens = "character",
                                     .context = 4,
                                     .include = {"*.cpp", "*.h"},
                                     .exclude = {"build*"}},
                                    Split::train);
  std::string text;
  for (int64_t i = 0; i < dataset->size(); ++i) text += dataset->vocabulary()->decode_all(window(*dataset, i).input);
  EXPECT_EQ(text, "one two ");  // a window of 4 is reserved for the offset, and the last token for validation
  EXPECT_EQ(symbols_of(*dataset), " ehnortw");
}

TEST(Text, SyntheticTextIsMadeOfSums) {
  const auto dataset =
      open_dataset({.kind = "synthetic_text", .tokens = "character", .context = 40, .size = 100}, Split::train);
  EXPECT_EQ(symbols_of(*dataset), "\n+0123456789=");
  EXPECT_NE(dataset->vocabulary()->decode_all(window(*dataset, 0).input).find('='), std::string::npos);
}

TEST(Text, DigestsTellContentsAndSettingsApart) {
  const TemporaryFolder folder;
  const DataConfig config{.kind = "text", .path = folder.write("a.txt", numbered(500)), .context = 16};
  DataConfig longer = config, other = config;
  longer.context = 17;
  other.path = folder.write("b.txt", numbered(499) + "!");
  EXPECT_EQ(digest(*open_dataset(config, Split::validation)), digest(*open_dataset(config, Split::validation)));
  EXPECT_NE(digest(*open_dataset(config, Split::validation)), digest(*open_dataset(longer, Split::validation)));
  EXPECT_NE(digest(*open_dataset(config, Split::validation)), digest(*open_dataset(other, Split::validation)));
}

TEST(Text, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", numbered(100));
  const auto usage = [](const DataConfig& c, Split split = Split::train) {
    return message_of<UsageError>([&] { open_dataset(c, split); });
  };
  const auto failure = [](const DataConfig& c) { return message_of<Failure>([&] { open_dataset(c, Split::train); }); };
  EXPECT_NE(usage({.kind = "text", .path = path, .context = 90})
                .find("data.context = 90 must be less than the 90 tokens of the train split"),
            std::string::npos);
  EXPECT_NE(usage({.kind = "text", .path = path, .context = 10}, Split::validation).find("validation split"),
            std::string::npos);
  EXPECT_NE(usage({.kind = "text", .path = path, .context = 8}, Split::test).find("no test split"), std::string::npos);
  EXPECT_NE(usage({.kind = "text", .path = path, .tokens = "word"}).find("\"byte\", \"character\" or \"bpe\""),
            std::string::npos);
  EXPECT_NE(usage({.kind = "text", .path = path, .context = 0}).find("context must be"), std::string::npos);
  EXPECT_NE(usage({.kind = "text"}).find("data.path is missing: 'text' needs one"), std::string::npos);
  EXPECT_NE(usage({.kind = "tekst", .path = path}).find("did you mean 'text'"), std::string::npos);
  EXPECT_NE(usage({.kind = "text", .path = path, .validation_fraction = 1}).find("validation_fraction"),
            std::string::npos);
  EXPECT_NE(failure({.kind = "text", .path = folder / "no"}).find("does not exist"), std::string::npos);
  EXPECT_NE(failure({.kind = "text", .path = folder.write("empty.txt", "")}).find("is empty"), std::string::npos);
  EXPECT_NE(failure({.kind = "text", .path = folder.path(), .include = {"*.md"}}).find("no text"), std::string::npos);
  EXPECT_NE(failure({.kind = "text", .path = folder.write("bad.txt", "\xff"), .tokens = "character"}).find("malformed"),
            std::string::npos);
}

// Editors on Windows write UTF-16 with a byte order mark, which is no UTF-8. As bytes it is read like any file.
TEST(Text, InUtf16HasNoCharacters) {
  const TemporaryFolder folder;
  std::string le = "\xff\xfe", be = "\xfe\xff";
  for (const char c : std::string("a line of text\n")) {
    le.append({c, '\0'});
    be.append({'\0', c});
  }
  for (const std::string& text : {le, be}) {
    const std::string path = folder.write("utf16.txt", text);
    const DataConfig characters = {.kind = "text", .path = path, .tokens = "character"};
    EXPECT_EQ(message_of<Failure>([&] { open_dataset(characters, Split::train); }),
              "[text] expected UTF-8, found UTF-16: convert the text, for example with iconv -f UTF-16 -t UTF-8");
    const auto bytes = open_dataset({.kind = "text", .path = path, .tokens = "byte", .context = 4}, Split::train);
    EXPECT_EQ(window(*bytes, 0).input[0], static_cast<unsigned char>(text[0]));
  }
}

// Writes a file of 100 tokens with consecutive numbers.
void write_tokens(const std::filesystem::path& path, int32_t first) {
  std::vector<int32_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), first);
  TokenWriter writer(path, 1000);
  writer.add(tokens);
  writer.finish();
}

TEST(Tokens, AreReadAcrossFiles) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path();
  std::filesystem::copy_file(std::filesystem::path(ELINVAR_SOURCE_DIR) / "tests/golden/tokenizer.json",
                             path / "tokenizer.json");
  for (int32_t i = 0; i < 3; ++i) write_tokens(path / fmt::format("train_{}.bin", i), i * 100);
  const DataConfig config{.kind = "tokens", .path = path.string(), .context = 16};
  const auto expect_row = [](const Dataset& dataset, int64_t index, int32_t first) {
    const Window w = window(dataset, index);
    for (int32_t t = 0; t < 16; ++t) {
      ASSERT_EQ(w.input[static_cast<size_t>(t)], first + t);
      ASSERT_EQ(w.target[static_cast<size_t>(t)], first + t + 1);
    }
  };
  {
    // Without a validation file, the last tenth is used.
    const auto train = open_dataset(config, Split::train), validation = open_dataset(config, Split::validation);
    EXPECT_EQ(train->size(), 15);
    EXPECT_EQ(train->classes(), 1000);
    for (int64_t i = 0; i < train->size(); ++i) expect_row(*train, i, static_cast<int32_t>(i) * 16);
    EXPECT_EQ(validation->size(), 1);
    expect_row(*validation, 0, 270);
  }
  write_tokens(path / "val_0.bin", 500);
  const auto train = open_dataset(config, Split::train), validation = open_dataset(config, Split::validation);
  EXPECT_EQ(train->size(), 17);
  expect_row(*train, 16, 256);
  EXPECT_EQ(validation->size(), 6);
  expect_row(*validation, 5, 580);
  EXPECT_NE(digest(*train), digest(*validation));

  write_tokens(path / "train_3.bin", 950);
  const auto beyond = open_dataset(config, Split::train);
  EXPECT_NE(message_of<Failure>([&] { window(*beyond, 22); }).find("is outside the vocabulary of 1000"),
            std::string::npos);
}

TEST(Tokens, AFractionIsHeldOutOfTheTrainingPart) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path();
  write_tokens(path / "train.bin", 0);
  write_tokens(path / "val.bin", 500);
  DataConfig config{.kind = "tokens",
                    .path = path.string(),
                    .tokenizer = std::string(ELINVAR_SOURCE_DIR) + "/tests/golden/tokenizer.json",
                    .context = 16};
  const auto first = [&](Split split) { return window(*open_dataset(config, split), 0).input[0]; };
  EXPECT_EQ(first(Split::validation), 500);
  EXPECT_EQ(first(Split::test), 500);
  config.validation_fraction = 0.4;
  EXPECT_EQ(open_dataset(config, Split::train)->size(), 2);
  EXPECT_EQ(first(Split::validation), 60);
  EXPECT_EQ(first(Split::test), 500);
  std::filesystem::remove(path / "val.bin");
  EXPECT_EQ(first(Split::validation), 60);
  EXPECT_NE(message_of<UsageError>([&] { first(Split::test); }).find("has no test split"), std::string::npos);
}

TEST(Tokens, ManyFilesNeedNoDescriptorEach) {
  const TemporaryFolder folder;
  for (int32_t i = 0; i < 40; ++i) write_tokens(folder / fmt::format("{:02}.bin", i), i);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = 32, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const auto read = [&] {
    const auto dataset = open_dataset({.kind = "tokens",
                                       .path = folder.path(),
                                       .tokenizer = std::string(ELINVAR_SOURCE_DIR) + "/tests/golden/tokenizer.json",
                                       .context = 16},
                                      Split::train);
    return window(*dataset, dataset->size() - 1).input[0];
  };
  EXPECT_NO_THROW(EXPECT_EQ(read(), 35 + 68));  // 3600 tokens: window 223 is the last, at 3568
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Tokens, TheDigestSeesEachFile) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path();
  const auto write = [&](const char* name, int32_t first) {
    std::vector<int32_t> tokens(400'000, 7);
    tokens[0] = first;
    TokenWriter writer(path / name, 1000);
    writer.add(tokens);
    writer.finish();
  };
  const auto digest_now = [&] {
    return digest(*open_dataset({.kind = "tokens",
                                 .path = path.string(),
                                 .tokenizer = std::string(ELINVAR_SOURCE_DIR) + "/tests/golden/tokenizer.json",
                                 .context = 16},
                                Split::train));
  };
  write("a.bin", 1);
  write("b.bin", 1);
  const Digest before = digest_now();
  EXPECT_EQ(digest_now(), before);
  std::filesystem::remove(path / "b.bin");
  write("b.bin", 2);
  EXPECT_NE(digest_now(), before);
}

TEST(Text, IsReadByPairEncoding) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += fmt::format("line {} of a text\n", i);
  DataConfig config{.kind = "text", .path = folder.write("a.txt", text), .tokens = "bpe", .context = 16};
  EXPECT_NE(message_of<UsageError>([&] { open_dataset(config, Split::train); }).find("data.tokenizer"),
            std::string::npos);
  config.tokenizer = std::string(ELINVAR_SOURCE_DIR) + "/tests/golden/tokenizer.json";
  const auto dataset = open_dataset(config, Split::train);
  EXPECT_EQ(dataset->classes(), 1000);
  EXPECT_EQ(text.find(dataset->vocabulary()->decode_all(window(*dataset, 0).input)), 0u);
}

TEST(Text, NamesOfSpecialTokensAreTextUnlessAskedFor) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 50; ++i) text += fmt::format("text {}<|endoftext|>", i);
  DataConfig config{.kind = "text", .path = folder.write("a.txt", text), .tokens = "bpe", .context = 16};
  config.tokenizer = std::string(ELINVAR_SOURCE_DIR) + "/tests/golden/tokenizer.json";
  const auto plain = open_dataset(config, Split::train);
  config.special_tokens = true;
  const auto special = open_dataset(config, Split::train);
  const auto end = *special->vocabulary()->end_of_text();
  const std::vector<int32_t> tokens = window(*special, 0).input, pieces = window(*plain, 0).input;
  EXPECT_GE(std::ranges::count(tokens, end), 2);
  EXPECT_EQ(std::ranges::count(pieces, end), 0);
  for (const auto& input : {tokens, pieces}) EXPECT_EQ(text.find(plain->vocabulary()->decode_all(input)), 0u);
  EXPECT_NE(digest(*plain), digest(*special));

  config.tokens = "byte";
  EXPECT_NE(message_of<UsageError>([&] {
              open_dataset(config, Split::train);
            }).find("data.special_tokens has a meaning only with data.tokens = \"bpe\""),
            std::string::npos);
  config.kind = "tokens";
  EXPECT_NE(message_of<UsageError>([&] {
              open_dataset(config, Split::train);
            }).find("data.special_tokens has no effect on files of tokens; tokenize encode --special-tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
