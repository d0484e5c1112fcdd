// `tokenize encode`: writes documents as files of tokens, for kind = "tokens" (data/dataset.h).
#include <filesystem>
#include <memory>

#include "data/bpe.h"
#include "data/token_file.h"
#include "tensor/base/check.h"
#include "tensor/philox.h"
#include "tensor/stream.h"
#include "tools/tokenize/commands.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// Writes train_000000.bin, train_000001.bin, ...; a document is never split over two files.
class Shards {
 public:
  Shards(fs::path folder, std::string split, int64_t vocabulary, int64_t most)
      : folder_(std::move(folder)), split_(std::move(split)), vocabulary_(vocabulary), most_(most) {}

  void add(const std::vector<int32_t>& tokens) {
    if (writer_ && writer_->size() + static_cast<int64_t>(tokens.size()) > most_) finish();
    if (!writer_) writer_.emplace(folder_ / fmt::format("{}_{:06}.bin", split_, files_++), vocabulary_);
    writer_->add(tokens);
    tokens_ += static_cast<int64_t>(tokens.size());
  }
  void finish() {
    if (writer_) writer_->finish();
    writer_.reset();
  }
  std::string text() const { return fmt::format("{} {} tokens in {} files", split_, tokens_, files_); }

 private:
  fs::path folder_;
  std::string split_;
  int64_t vocabulary_, most_, tokens_ = 0;
  int files_ = 0;
  std::optional<TokenWriter> writer_;
};

// Returns the token that precedes each document.
int32_t separator_of(const Bpe& bpe, const EncodeCommand& command) {
  std::vector<std::string> names = {command.separator};
  if (command.separator.empty()) names = {kEndOfText, "<|end_of_text|>"};
  for (const std::string& name : names)
    if (const std::optional<int32_t> token = bpe.special(name)) return *token;
  constexpr size_t kMostNamed = 8;
  std::vector<std::string> specials;
  for (const auto& [name, token] : bpe.parts().specials)
    if (specials.size() < kMostNamed) specials.push_back(name);
  check(false, "{} has no special token {}, which would part documents; name one with --separator: it has {}{}",
        command.tokenizer, fmt::join(names, " or "),
        specials.empty() ? "none" : fmt::format("{}", fmt::join(specials, ", ")),
        bpe.parts().specials.size() > specials.size() ? " and more" : "");
  return -1;
}

// Whether document `n` of a set is held out for validation: a pure function of its index.
bool held_out(int64_t n, double fraction) {
  const Random4 words =
      philox(key_of("tokenize.validation"), static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 0, 0);
  return static_cast<double>(words.v[0]) < fraction * 4294967296.0;
}

}  // namespace

int encode(const EncodeCommand& command) {
  const std::unique_ptr<Bpe> bpe = Bpe::load(command.tokenizer);
  const int32_t separator = separator_of(*bpe, command);
  const fs::path out = command.out;
  make_directories(out);
  for (const fs::directory_entry& entry : fs::directory_iterator(out))
    check(entry.path().extension() != ".bin", "{} holds tokens already ({}); choose another folder with --out",
          out.string(), entry.path().filename().string());
  Shards train(out, "train", bpe->size(), command.shard_tokens), val(out, "val", bpe->size(), command.shard_tokens);
  Tally tally;
  for_each_batch(command.documents, [&](const std::vector<std::string>& texts) {
    std::vector<std::vector<int32_t>> tokens(texts.size());
    cpu_stream().parallel_for(static_cast<int64_t>(texts.size()), 1, [&](int64_t first, int64_t last) {
      BpeEncoder encoder(*bpe);
      for (int64_t i = first; i < last; ++i) {
        const std::string& text = texts[static_cast<size_t>(i)];
        std::vector<int32_t>& made = tokens[static_cast<size_t>(i)];
        made.reserve(text.size() / 3 + 1);
        made.push_back(separator);
        if (command.special_tokens) encoder.encode_prompt(text, made);
        else encoder.encode(text, made);
      }
    });
    for (size_t i = 0; i < texts.size(); ++i)
      (held_out(tally.documents() + static_cast<int64_t>(i), command.validation) ? val : train).add(tokens[i]);
    tally.add(texts);
  });
  check(tally.documents() > 0, "no documents in what was given; expected files of text, or .jsonl");
  train.finish();
  val.finish();
  tally.finish();
  bpe->save(out / "tokenizer.json");
  fmt::print("{}\n{}\n", train.text(), val.text());
  return 0;
}

}  // namespace elinvar
