#pragma once
// The subcommands of `tokenize`. Each returns an exit code, or throws UsageError (2) or Failure (3).
#include <cstdint>
#include <string>
#include <vector>

#include "data/bpe_trainer.h"
#include "tools/tokenize/documents.h"

namespace elinvar {

struct EncodeCommand {
  Documents documents;
  std::string tokenizer;        // data/bpe.h
  std::string separator;        // special token before each document; empty: <|endoftext|> or <|end_of_text|>
  bool special_tokens = false;  // names of special tokens in documents become these tokens
  std::string out;              // a folder without token files
  double validation = 0.01;
  int64_t shard_tokens = 100'000'000;
};
int encode(const EncodeCommand& command);

struct LearnCommand {
  Documents documents;
  std::string out;  // path of the tokenizer.json to write
  BpeTraining training;
};
int learn(const LearnCommand& command);

}  // namespace elinvar
