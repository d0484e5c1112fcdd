// Compares byte-level BPE with Hugging Face's `tokenizers`: tests/golden/make_tokens.py wrote its tokens for the same
// texts and the vocabulary that it learns from them.
#include "data/bpe.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/bpe_trainer.h"
#include "data/nfc.h"
#include "data/token_file.h"
#include "data/unicode_classes.h"
#include "data/utf8.h"
#include "tensor/base/check.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kGolden = fs::path(ELINVAR_SOURCE_DIR) / "tests/golden";
constexpr size_t kTexts = 10000, kBlock = 1000;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint32_t below(uint32_t n) {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>(state_ * 2685821657736338717u >> 32) % n;
  }
  template <size_t n>
  std::string_view one_of(const std::string_view (&words)[n]) {
    return words[below(n)];
  }

 private:
  uint64_t state_;  // xorshift64*
};

std::string random_text(Random& random) {
  constexpr std::string_view kEndings[] = {"'s", "'t", "'re", "'ve", "'m",      "'ll",
                                           "'d", "'S", "'LL", "'Re", "'\u017f", "'"};
  constexpr std::string_view kSpaces[] = {"\n",     "\r",     "\r\n",   "\t",  "\u00a0",
                                          "\u2003", "\u3000", "\u0085", " \n", "\n "};
  constexpr std::string_view kSigns = "!?.,;:-_()[]{}\"#@/\\<|>";
  std::string text;
  const uint32_t units = 1 + random.below(40);
  for (uint32_t i = 0; i < units; ++i) {
    const uint32_t kind = random.below(16);
    const auto repeat = [&](uint32_t times, auto put) {
      for (uint32_t j = 0; j < times; ++j) put();
    };
    if (kind < 5) repeat(1 + random.below(6), [&] { text += static_cast<char>('a' + random.below(26)); });
    else if (kind == 5) text.append(1 + random.below(3), ' ');
    else if (kind == 6) repeat(1 + random.below(5), [&] { text += static_cast<char>('0' + random.below(10)); });
    else if (kind == 7) text += random.one_of(kEndings);
    else if (kind == 8) text += kSigns[random.below(static_cast<uint32_t>(kSigns.size()))];
    else if (kind == 9) text += random.one_of(kSpaces);
    else if (kind == 10) text += static_cast<char>('A' + random.below(26));
    else if (kind == 11) append_utf8(text, 0xC0 + random.below(0x180));
    else if (kind == 12) append_utf8(text, 0x370 + random.below(0x900));
    else if (kind == 13) append_utf8(text, 0x4E00 + random.below(0x5000));
    else if (kind == 14) append_utf8(text, 0x1F300 + random.below(0x300));
    else {
      const uint32_t point = random.below(0x110000);
      append_utf8(text, point >= 0xD800 && point <= 0xDFFF ? 0xFFFD : point);
    }
  }
  return text;
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = [] {
    Random random(2026);
    std::vector<std::string> list;
    for (size_t i = 0; i < kTexts; ++i) list.push_back(random_text(random));
    return list;
  }();
  return all;
}

// The 64-bit FNV-1a of the number of tokens and the tokens of each text.
class Fnv {
 public:
  void add(const std::vector<int32_t>& tokens) {
    add(static_cast<uint32_t>(tokens.size()));
    for (const int32_t token : tokens) add(static_cast<uint32_t>(token));
  }
  std::string hex() const { return fmt::format("{:016x}", hash_); }

 private:
  void add(uint32_t number) {
    for (int i = 0; i < 4; ++i) hash_ = (hash_ ^ (number >> 8 * i & 0xFF)) * 0x100000001B3u;
  }
  uint64_t hash_ = 0xCBF29CE484222325u;
};

void expect_golden(const Bpe& bpe, const std::string& key) {
  std::ifstream in(kGolden / "tokens.json");
  const Json golden = Json::parse(in).at(key);
  ASSERT_EQ(golden.size(), kTexts / kBlock);
  for (size_t block = 0; block < golden.size(); ++block) {
    Fnv digest;
    for (size_t i = block * kBlock; i < (block + 1) * kBlock; ++i) digest.add(bpe.encode(texts()[i]));
    EXPECT_EQ(digest.hex(), golden[block].get<std::string>()) << key << ", texts from " << block * kBlock;
  }
}

Bpe with_pattern(const Bpe& bpe, Pretokens kind) {
  BpeParts parts = bpe.parts();
  parts.pretokens = kind;
  return Bpe(std::move(parts));
}

TEST(Bpe, MakesTheReferencesTokensOfAllOfUnicode) {
  const auto bpe = Bpe::load(kGolden / "tokenizer.json");
  EXPECT_EQ(bpe->size(), 1000);
  expect_golden(*bpe, "gpt2");
  expect_golden(with_pattern(*bpe, Pretokens::llama3), "llama3");
  expect_golden(with_pattern(*bpe, Pretokens::qwen2), "qwen2");
}

// GPT-2's files are not part of the project: ELINVAR_GPT2 names its encoder.json, ELINVAR_SHAKESPEARE the text.
TEST(Bpe, MakesTheReferencesTokensWithTheVocabularyOfGpt2) {
  const char* folder = std::getenv("ELINVAR_GPT2");
  if (folder == nullptr) GTEST_SKIP() << "ELINVAR_GPT2 names no encoder.json of GPT-2";
  const auto bpe = Bpe::load(folder);
  EXPECT_EQ(bpe->size(), 50257);
  EXPECT_EQ(bpe->special("<|endoftext|>"), 50256);
  expect_golden(*bpe, "gpt2_vocabulary");
  const char* shakespeare = std::getenv("ELINVAR_SHAKESPEARE");
  if (shakespeare == nullptr) return;
  std::ifstream in(kGolden / "tokens.json");
  Fnv digest;
  digest.add(bpe->encode(read_file(shakespeare)));
  EXPECT_EQ(digest.hex(), Json::parse(in).at("shakespeare").at(0).get<std::string>());
}

Json split_by(Pretokens kind) {
  return {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", pattern_of(kind)}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
}

Json added(int id, const char* name, bool special) {
  return {{"id", id},        {"content", name},     {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Returns the golden vocabulary loaded from a file that `change` has modified.
std::unique_ptr<Bpe> load_changed(const std::function<void(Json&)>& change) {
  const TemporaryFolder folder;
  std::ifstream in(kGolden / "tokenizer.json");
  Json json = Json::parse(in);
  change(json);
  return Bpe::load(folder.write("tokenizer.json", json.dump()));
}

// As in make_tokens.py.
void like_qwen2(Json& json) {
  json["normalizer"] = {{"type", "NFC"}};
  json["pre_tokenizer"] = split_by(Pretokens::qwen2);
  json["added_tokens"] = {added(0, "<|endoftext|>", true), added(1000, "<|im_start|>", true), added(1001, "qz", false),
                          added(1002, "qzx", false), added(1003, "  ", false)};
}

void like_llama3(Json& json) {
  json["pre_tokenizer"] = split_by(Pretokens::llama3);
  json["model"]["ignore_merges"] = true;
  json["added_tokens"] = {added(1000, "<|begin_of_text|>", true), added(1001, "<|end_of_text|>", true)};
}

TEST(Bpe, ReadsFilesLikeThoseOfQwen2AndLlama3) {
  expect_golden(*load_changed(like_qwen2), "like_qwen2");
  expect_golden(*load_changed(like_llama3), "like_llama3");
  expect_golden(*load_changed([](Json& j) {
    for (const int id : {1000, 1001, 1002}) {
      j["added_tokens"].push_back(added(id, id == 1000 ? "qz" : id == 1001 ? "qzx" : "  ", false));
      j["added_tokens"].back()["normalized"] = true;
    }
  }),
                "with_words");
}

TEST(Bpe, NormalFormsOfWhatIsNoUtf8) {
  EXPECT_EQ(nfc("e\u0301\xff\u0301 A\u030a\u212b\xe2\x84"), "\u00e9\xff\u0301 \u00c5\u00c5\xe2\x84");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");               // a character that is never composed
  EXPECT_EQ(nfc("a\u0323\u0307"), nfc("a\u0307\u0323"));  // marks are sorted
  EXPECT_EQ(nfc(std::string("\0x", 2)), std::string("\0x", 2));
  std::string marks = "a";
  for (int i = 0; i < 100; ++i) marks += "\u0315";
  EXPECT_EQ(nfc(marks), marks);
}

TEST(Bpe, NoTextMakesASpecialToken) {
  // It is neither a whole piece nor the result of a merge.
  const auto bpe = load_changed([](Json& json) {
    like_llama3(json);
    json["model"]["vocab"]["user"] = 1002;
    json["added_tokens"].push_back(added(1002, "user", true));
  });
  EXPECT_EQ(std::ranges::count(bpe->encode("user"), 1002), 0);
  EXPECT_EQ(bpe->encode_prompt("user"), std::vector<int32_t>{1002});
  EXPECT_EQ(bpe->decode_all(bpe->encode("user")), "user");
}

TEST(Bpe, LearnsTheReferencesVocabulary) {
  BpeTrainer trainer({.vocabulary = 1000});
  for (const std::string& text : texts()) trainer.add(text);
  const Bpe ours = trainer.train();
  const auto theirs = Bpe::load(kGolden / "tokenizer.json");
  ASSERT_EQ(ours.parts().merges.size(), theirs->parts().merges.size());
  const auto merge = [](const Bpe& bpe, size_t i) {
    const auto [left, right] = bpe.parts().merges[i];
    return std::pair(bpe.decode(left), bpe.decode(right));
  };
  for (size_t i = 0; i < ours.parts().merges.size(); ++i) ASSERT_EQ(merge(ours, i), merge(*theirs, i)) << i;
}

TEST(Bpe, LearnsFromOnePieceOfAMillionBytes) {
  BpeTrainer trainer({.vocabulary = 256 + 1 + 10});
  trainer.add(std::string(size_t{1} << 20, 'a'));
  const Bpe bpe = trainer.train();
  ASSERT_EQ(bpe.size(), 267);
  for (int32_t i = 0; i < 10; ++i) EXPECT_EQ(bpe.decode(256 + i), std::string(size_t{2} << i, 'a'));
}

TEST(Bpe, GivesBackAnyBytes) {
  const auto bpe = Bpe::load(kGolden / "tokenizer.json");
  for (const std::string& text : texts()) ASSERT_EQ(bpe->decode_all(bpe->encode(text)), text);
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (uint32_t n = random.below(60); n > 0; --n) bytes += static_cast<char>(random.below(256));
    for (const Pretokens kind : {Pretokens::gpt2, Pretokens::llama3})
      ASSERT_EQ(bpe->decode_all(with_pattern(*bpe, kind).encode(bytes)), bytes);
  }
  const std::string longest(100000, 'a');
  EXPECT_EQ(bpe->decode_all(bpe->encode(longest)), longest);
}

TEST(Bpe, IsWrittenAndReadBack) {
  const TemporaryFolder folder;
  BpeTrainer trainer({.vocabulary = 300, .pretokens = Pretokens::llama3});
  trainer.add("to be, or not to be, that is the question: 1600, 1601, 1602 \U0001F600 \U0001F600");
  const auto digest = [](const Bpe& b) {
    Hasher hasher;
    b.describe(hasher);
    return hasher.digest();
  };
  const auto expect_same_back = [&](const Bpe& bpe) {
    bpe.save(folder / "tokenizer.json");
    const auto read = Bpe::load(folder.path());
    EXPECT_EQ(digest(*read), digest(bpe));
    EXPECT_EQ(read->parts().specials, bpe.parts().specials);
    EXPECT_EQ(read->parts().words, bpe.parts().words);
  };
  expect_same_back(trainer.train());
  const auto qwen2 = load_changed(like_qwen2), without = load_changed([](Json&json) {
                                                 like_qwen2(json);
                                                 json["normalizer"] = nullptr;
                                               });
  expect_same_back(*qwen2);
  EXPECT_NE(digest(*qwen2), digest(*without));
}

TEST(Bpe, SpecialTokensStandInPromptsAlone) {
  const auto bpe = Bpe::load(kGolden / "tokenizer.json");
  const int32_t end = *bpe->special("<|endoftext|>");
  const std::vector<int32_t> prompt = bpe->encode_prompt("a<|endoftext|>b<|endoftext|>");
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), end), 2);
  EXPECT_EQ(bpe->decode_all(prompt), "a<|endoftext|>b<|endoftext|>");
  const std::vector<int32_t> text = bpe->encode("a<|endoftext|>b");
  EXPECT_EQ(std::count(text.begin(), text.end(), end), 0);
}

TEST(Bpe, RefusesWhatItCannotFollow) {
  const TemporaryFolder folder;
  std::ifstream in(kGolden / "tokenizer.json");
  const Json good = Json::parse(in);
  const auto complaint = [&](auto change) {
    Json json = good;
    change(json);
    const std::string path = folder.write("tokenizer.json", json.dump());
    return message_of<Failure>([&] { Bpe::load(path); });
  };
  const auto expect = [&](const std::string& said, auto change) {
    EXPECT_NE(complaint(change).find(said), std::string::npos) << complaint(change);
  };
  expect("\"normalizer\"", [](Json& j) { j["normalizer"] = {{"type", "NFKC"}}; });
  for (const char* key : {"lstrip", "rstrip", "single_word"})
    expect(fmt::format("\"{}\": true is not supported", key), [&](Json& j) { j["added_tokens"][0][key] = true; });
  expect("\"normalized\": true", [](Json& j) {
    like_qwen2(j);
    j["added_tokens"][2]["normalized"] = true;
  });
  expect("the added token 'ab' has the number 1001, and ", [](Json& j) {
    like_qwen2(j);
    j["added_tokens"][2]["content"] = "ab";
  });
  expect("add_prefix_space must be false", [](Json& j) {
    like_llama3(j);
    j["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true;
  });
  expect("\"type\": \"Unigram\" is not supported", [](Json& j) { j["model"]["type"] = "Unigram"; });
  expect("\"byte_fallback\"", [](Json& j) { j["model"]["byte_fallback"] = true; });
  expect("\"pre_tokenizer\"", [](Json& j) { j["pre_tokenizer"] = {{"type", "Whitespace"}}; });
  expect("merge 743, 'a nowhere': 'nowhere' is no token", [](Json& j) { j["model"]["merges"].push_back("a nowhere"); });
  expect("which is no token", [](Json& j) { j["model"]["merges"].push_back(Json{"!", "\""}); });
  expect("not byte-level", [](Json& j) { j["model"]["vocab"].erase("!"); });
  expect("have the number 5", [](Json& j) { j["model"]["vocab"]["again"] = 5; });
  expect("expected a number from 0", [](Json& j) { j["model"]["vocab"]["again"] = -5; });
  expect("merges", [](Json& j) { j["model"].erase("merges"); });
  EXPECT_NE(message_of<Failure>([&] { Bpe::load(folder.write("x.json", "[1]")); }).find("is no JSON object"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { BpeTrainer({.vocabulary = 100}); }).find("too small"), std::string::npos);
}

TEST(UnicodeClasses, AreThoseOfUnicode16) {
  EXPECT_EQ(class_of('a'), CharClass::letter);
  EXPECT_EQ(class_of(U'ß'), CharClass::letter);
  EXPECT_EQ(class_of(U'中'), CharClass::letter);
  EXPECT_EQ(class_of(U'½'), CharClass::number);
  EXPECT_EQ(class_of(U'\u3000'), CharClass::space);
  EXPECT_EQ(class_of(U'\u0301'), CharClass::other);       // a combining accent is a mark
  EXPECT_EQ(class_of(U'\U00016D40'), CharClass::letter);  // Kirat Rai, new in version 16
  EXPECT_EQ(class_of(0x10FFFF), CharClass::other);
  EXPECT_EQ(class_of(0x110000), CharClass::other);
}

TEST(TokenFile, IsThatOfLlmC) {
  const TemporaryFolder folder;
  for (const int64_t vocabulary : {50257, 128256}) {
    const fs::path path = folder / fmt::format("{}.bin", vocabulary);
    const auto last = static_cast<int32_t>(vocabulary - 1);
    TokenWriter writer(path, vocabulary);
    writer.add({1, 2, last});
    writer.add({4});
    EXPECT_FALSE(fs::exists(path));
    writer.finish();
    const TokenFile file(path);
    ASSERT_EQ(file.size(), 4);
    std::vector<int32_t> tokens(3);
    file.read(1, 3, tokens.data());
    EXPECT_EQ(tokens, (std::vector<int32_t>{2, last, 4}));
    const std::string raw = read_file(path);
    EXPECT_EQ(raw.size(), 1024 + 4u * (vocabulary == 50257 ? 2 : 4));
    EXPECT_NE(message_of<Failure>([&] {
                TokenFile(folder.write("cut.bin", raw.substr(0, raw.size() - 1)));
              }).find("its header says that it has 4 tokens"),
              std::string::npos);
  }
  EXPECT_NE(message_of<Failure>([&] { TokenFile(folder.write("no.bin", "words")); }).find("expected a file of tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
