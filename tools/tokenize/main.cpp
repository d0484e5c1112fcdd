// tokenize: converts text to tokens and learns vocabularies. Exit codes: 0 done, 2 wrong usage, 3 a failure at run
// time.
#include <CLI/CLI.hpp>

#include "tensor/base/threads.h"
#include "tensor/stream.h"
#include "tools/cli/main_program.h"
#include "tools/cli/subcommands.h"
#include "tools/cli/number_from.h"
#include "tools/tokenize/commands.h"

namespace {

int tokenize_program(int argc, char** argv) {
  CLI::App app("Turns text into files of tokens for training, and learns vocabularies.", "tokenize");
  app.set_version_flag("--version", "tokenize " ELINVAR_VERSION);
  app.require_subcommand(1);
  elinvar::Documents documents;
  const auto add_documents = [&](CLI::App* command) {
    command
        ->add_option("inputs", documents.inputs, "files, folders and .tar archives of text; .jsonl: a document a line")
        ->required();
    command->add_option("--field", documents.field, "where a line of .jsonl has its text")->capture_default_str();
    command->add_option("--include", documents.include,
                        "of a folder: patterns of the files that are read (default: all)");
    command->add_option("--exclude", documents.exclude, "of a folder: patterns of files and folders that are not read");
  };

  elinvar::EncodeCommand encode_options;
  int threads = elinvar::usable_threads();
  CLI::App* encode = app.add_subcommand("encode", "write the tokens of documents, for data.kind = \"tokens\"");
  add_documents(encode);
  encode
      ->add_option("--tokenizer", encode_options.tokenizer, "tokenizer.json, or a folder with it or GPT-2's two files")
      ->required();
  encode->add_option("--separator", encode_options.separator,
                     "the special token before each document (default: <|endoftext|> or <|end_of_text|>)");
  encode->add_flag(
      "--special-tokens", encode_options.special_tokens,
      "names of special tokens in documents, such as <|endoftext|>, become these tokens; otherwise they are "
      "text like any other");
  encode->add_option("--out", encode_options.out, "a folder for the tokens and the tokenizer")->required();
  encode->add_option("--validation", encode_options.validation, "the share of documents that is held out")
      ->check(elinvar::number_from(0, 0.5))
      ->capture_default_str();
  encode
      ->add_option("--shard-tokens", encode_options.shard_tokens,
                   "tokens in a file, at most (unless a document has more)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30))
      ->capture_default_str();
  encode->add_option("--threads", threads, "CPU threads")->check(CLI::Range(1, 1024))->capture_default_str();

  elinvar::LearnCommand learn_options;
  std::string pattern = "gpt2";
  CLI::App* learn = app.add_subcommand("learn", "learn a byte-level BPE vocabulary");
  add_documents(learn);
  learn->add_option("--out", learn_options.out, "the file to write, tokenizer.json")->required();
  learn->add_option("--vocabulary", learn_options.training.vocabulary, "tokens in all")->capture_default_str();
  learn->add_option("--min-count", learn_options.training.min_count, "a pair becomes a token if it is found so often")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  learn->add_option("--pattern", pattern, "how text is cut before: as by gpt2, llama3 or qwen2")
      ->check(CLI::IsMember({"gpt2", "llama3", "qwen2"}))
      ->capture_default_str();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return elinvar::end_of_parsing(app, error, argc, argv);
  }
  elinvar::set_threads(threads);
  if (encode->parsed()) {
    encode_options.documents = documents;
    return elinvar::encode(encode_options);
  }
  learn_options.documents = documents;
  using elinvar::Pretokens;
  learn_options.training.pretokens = pattern == "gpt2"     ? Pretokens::gpt2
                                     : pattern == "llama3" ? Pretokens::llama3
                                                           : Pretokens::qwen2;
  return elinvar::learn(learn_options);
}

}  // namespace

int main(int argc, char** argv) {
  return elinvar::main_program("tokenize", [&] { return tokenize_program(argc, argv); });
}
