// Files of byte-level tokenizers, which write the bytes of a token as characters.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/bpe.h"
#include "data/byte_characters.h"
#include "data/utf8.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMostTokens = int64_t{1} << 21;

std::string written(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(text, characters_of_bytes()[static_cast<unsigned char>(c)]);
  return text;
}

// Returns the bytes that a written token represents; a token with other characters (an added one) represents itself.
std::string bytes_of(std::string_view text) {
  static const std::unordered_map<char32_t, char> bytes = [] {
    std::unordered_map<char32_t, char> map;
    for (size_t byte = 0; byte < 256; ++byte)
      map.emplace(characters_of_bytes()[byte], static_cast<char>(static_cast<unsigned char>(byte)));
    return map;
  }();
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    const auto byte = bytes.find(c.value);
    if (!c.good || byte == bytes.end()) return std::string(text);
    result += byte->second;
    at += c.bytes;
  }
  return result;
}

int32_t token_in(const Json& value, std::string_view name) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kMostTokens)
    fail("expected a number from 0 to {} for the token '{}', found {}", kMostTokens - 1, name, value.dump());
  return static_cast<int32_t>(value.get<int64_t>());
}

void put_token(BpeParts& parts, int32_t token, std::string bytes) {
  if (static_cast<size_t>(token) >= parts.tokens.size()) parts.tokens.resize(static_cast<size_t>(token) + 1);
  std::string& place = parts.tokens[static_cast<size_t>(token)];
  if (!place.empty() && place != bytes) fail("two tokens have the number {}", token);
  place = std::move(bytes);
}

void read_vocabulary(BpeParts& parts, const Json& vocabulary) {
  if (!vocabulary.is_object()) fail("expected an object of tokens and their numbers");
  for (const auto& [name, number] : vocabulary.items()) {
    if (name.empty()) fail("a token without characters");
    put_token(parts, token_in(number, name), bytes_of(name));
  }
}

void add_merge(BpeParts& parts, const Json& vocabulary, const std::string& left, const std::string& right) {
  const auto number = [&](const std::string& name) {
    const auto found = vocabulary.find(name);
    if (found == vocabulary.end()) fail("merge {}, '{} {}': '{}' is no token", parts.merges.size(), left, right, name);
    return token_in(*found, name);
  };
  parts.merges.emplace_back(number(left), number(right));
}

void add_merge(BpeParts& parts, const Json& vocabulary, const std::string& line) {
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
    fail("merge {}: expected two tokens with a space between, found '{}'", parts.merges.size(), line);
  add_merge(parts, vocabulary, line.substr(0, space), line.substr(space + 1));
}

// --- encoder.json and vocab.bpe

fs::path merges_beside(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const auto& [tokens, merges] : {std::pair("encoder.json", "vocab.bpe"), std::pair("vocab.json", "merges.txt")})
    if (name.ends_with(tokens))
      return path.parent_path() / (name.substr(0, name.size() - std::string_view(tokens).size()) + merges);
  fail("expected tokenizer.json, or encoder.json with vocab.bpe beside it, or vocab.json with merges.txt");
}

BpeParts read_pair(const fs::path& path, const Json& vocabulary) {
  BpeParts parts;
  const fs::path merges = merges_beside(path);
  read_vocabulary(parts, vocabulary);
  std::istringstream lines(read_file(merges));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && !line.starts_with("#version")) add_merge(parts, vocabulary, line);
  }
  const auto end = vocabulary.find(kEndOfText);
  if (end != vocabulary.end()) parts.specials.emplace(kEndOfText, token_in(*end, kEndOfText));
  return parts;
}

// --- tokenizer.json

// Refuses settings with which `tokenizers` would produce other tokens than Bpe.
void expect(const Json& json, const char* key, const Json& usual) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null() || *found == usual) return;
  fail("\"{}\": {} is not supported; expected {}", key, found->dump(), usual.dump());
}

void read_byte_level(BpeParts& parts, const Json& json) { parts.prefix_space = json.value("add_prefix_space", true); }

void read_split(BpeParts& parts, const Json& json) {
  const Json pattern = json.value("pattern", Json::object());
  const std::string text = pattern.contains("Regex") ? pattern["Regex"].get<std::string>() : std::string();
  const std::optional<Pretokens> kind = pretokens_of(text);
  if (!kind) fail("the pattern {} is none of those that are supported: of GPT-2, LLaMA 3 and Qwen 2", pattern.dump());
  expect(json, "behavior", "Isolated");
  expect(json, "invert", false);
  parts.pretokens = *kind;
}

void read_pre_tokenizer(BpeParts& parts, const Json& json) {
  const std::string type = json.is_object() ? json.value("type", "") : "";
  if (type == "ByteLevel") {
    expect(json, "use_regex", true);
    read_byte_level(parts, json);
    return;
  }
  const Json steps = type == "Sequence" ? json.value("pretokenizers", Json::array()) : Json::array();
  if (steps.size() != 2 || steps[0].value("type", "") != "Split" || steps[1].value("type", "") != "ByteLevel")
    fail("\"pre_tokenizer\" {} is not supported: expected ByteLevel, or a Split and then ByteLevel", json.dump());
  read_split(parts, steps[0]);
  if (steps[1].value("use_regex", true)) fail("\"pre_tokenizer\": after a Split, use_regex must be false");
  read_byte_level(parts, steps[1]);
  if (parts.prefix_space) fail("\"pre_tokenizer\": after a Split, add_prefix_space must be false");
}

void read_normalizer(BpeParts& parts, const Json& json) {
  parts.nfc = json.is_object() && json.value("type", "") == "NFC";
  if (!json.is_null() && !parts.nfc) fail("\"normalizer\" {} is not supported: expected null or NFC", json.dump());
}

// Reads special tokens, and tokens that are cut out of a text; the latter must all be cut before it is normalized, or
// all after.
void read_added(BpeParts& parts, const Json& tokens, const Json& vocabulary) {
  std::optional<bool> normalized;
  if (parts.nfc) normalized = false;
  for (const Json& added : tokens) {
    const std::string name = added.at("content").get<std::string>();
    if (name.empty()) fail("an added token without characters");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) expect(added, key, false);
    const int32_t token = token_in(added.at("id"), name);
    const auto known = vocabulary.find(name);
    if (known != vocabulary.end() && *known != token)
      fail("the added token '{}' has the number {}, and {} in the vocabulary", name, token, known->dump());
    put_token(parts, token, known != vocabulary.end() ? bytes_of(name) : name);
    const bool special = added.value("special", true);
    (special ? parts.specials : parts.words).emplace(name, token);
    if (special) continue;
    if (!normalized) normalized = added.value("normalized", false);
    expect(added, "normalized", *normalized);
  }
}

BpeParts read_tokenizer(const Json& json) {
  BpeParts parts;
  const Json& model = json.at("model");
  expect(model, "type", "BPE");
  for (const char* key : {"dropout", "unk_token"}) expect(model, key, nullptr);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) expect(model, key, "");
  expect(model, "byte_fallback", false);
  read_normalizer(parts, json.value("normalizer", Json()));
  parts.whole_pieces = model.value("ignore_merges", false);
  read_pre_tokenizer(parts, json.value("pre_tokenizer", Json()));
  const Json& vocabulary = model.at("vocab");
  read_vocabulary(parts, vocabulary);
  for (const Json& merge : model.at("merges")) {
    if (merge.is_string()) add_merge(parts, vocabulary, merge.get<std::string>());
    else add_merge(parts, vocabulary, merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
  }
  read_added(parts, json.value("added_tokens", Json::array()), vocabulary);
  return parts;
}

fs::path file_in(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_directory(path, unknown)) return path;
  for (const char* name : {"tokenizer.json", "encoder.json", "vocab.json"})
    if (fs::exists(path / name)) return path / name;
  fail("{} has none of tokenizer.json, encoder.json and vocab.json", path.string());
}

}  // namespace

std::unique_ptr<Bpe> Bpe::load(const fs::path& given) {
  const fs::path path = file_in(given);
  const Json json = read_json_object(path);
  try {
    return std::make_unique<Bpe>(json.contains("model") && json["model"].is_object() ? read_tokenizer(json)
                                                                                     : read_pair(path, json));
  } catch (const std::exception& error) {
    fail("{}: {}", path.string(), reason_of(error));
  }
}

void Bpe::save(const fs::path& path) const { replace_file(path, tokenizer_json()); }

std::string Bpe::tokenizer_json() const {
  using Ordered = nlohmann::ordered_json;
  Ordered vocabulary = Ordered::object(), merges = Ordered::array(), added = Ordered::array();
  std::map<int32_t, std::string> names_of_added;
  for (const std::map<std::string, int32_t>* some : {&parts_.specials, &parts_.words})
    for (const auto& [name, token] : *some) names_of_added.emplace(token, name);
  const auto name_of = [&](int32_t token) {
    const auto found = names_of_added.find(token);
    return found == names_of_added.end() ? written(parts_.tokens[static_cast<size_t>(token)]) : found->second;
  };
  Ordered::object_t& names = vocabulary.get_ref<Ordered::object_t&>();  // a lookup of each would take long
  for (int32_t token = 0; token < size(); ++token)
    if (!parts_.tokens[static_cast<size_t>(token)].empty()) names.emplace_back(name_of(token), token);
  for (const auto& [left, right] : parts_.merges) merges.push_back(Ordered{name_of(left), name_of(right)});
  for (const auto& [token, name] : names_of_added)
    added.push_back({{"id", token},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", parts_.specials.contains(name)}});
  const auto byte_level = [&](bool use_regex) {
    return Ordered{{"type", "ByteLevel"},
                   {"add_prefix_space", parts_.prefix_space},
                   {"trim_offsets", true},
                   {"use_regex", use_regex}};
  };
  Ordered pre = byte_level(true);
  if (parts_.pretokens != Pretokens::gpt2)
    pre = {{"type", "Sequence"},
           {"pretokenizers",
            {{{"type", "Split"},
              {"pattern", {{"Regex", pattern_of(parts_.pretokens)}}},
              {"behavior", "Isolated"},
              {"invert", false}},
             byte_level(false)}}};
  const Ordered file = {{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", added},
                        {"normalizer", parts_.nfc ? Ordered{{"type", "NFC"}} : Ordered()},
                        {"pre_tokenizer", pre},
                        {"post_processor", nullptr},
                        {"decoder", byte_level(true)},
                        {"model",
                         {{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", parts_.whole_pieces},
                          {"vocab", vocabulary},
                          {"merges", merges}}}};
  return file.dump(1) + "\n";
}

}  // namespace elinvar
