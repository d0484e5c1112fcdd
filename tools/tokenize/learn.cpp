// `tokenize learn`: learns a vocabulary from given texts.
#include <filesystem>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/tokenize/commands.h"

namespace elinvar {

int learn(const LearnCommand& command) {
  const std::filesystem::path out = command.out;
  check(!std::filesystem::is_directory(out), "--out: {} is a folder; name the file to write, {}", out.string(),
        (out / "tokenizer.json").string());
  if (out.has_parent_path()) make_directories(out.parent_path());
  check_replaceable(out);
  BpeTrainer trainer(command.training);
  Tally tally;
  for_each_batch(command.documents, [&](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) trainer.add(text);
    tally.add(texts);
  });
  check(tally.documents() > 0, "no documents in what was given; expected files of text, or .jsonl");
  tally.finish();
  const Bpe bpe = trainer.train();
  bpe.save(out);
  fmt::print("{}: {} tokens\n", command.out, bpe.size());
  if (bpe.size() < command.training.vocabulary)
    fmt::print(stderr, "fewer than the {} asked for: no other pair is found {} times\n", command.training.vocabulary,
               command.training.min_count);
  return 0;
}

}  // namespace elinvar
