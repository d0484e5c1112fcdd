// tokenizer.json, and GPT-2's two files in sequence.
#include "data/bpe.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

void encode_and_back(const Bpe& bpe) {
  const std::string text = "It's 2024, l\xC3\xA0 \xE4\xBD\xA0\xE5\xA5\xBD\n\n  x\t\xFF\x80 the end<|endoftext|>";
  const std::string back = bpe.decode_all(bpe.encode(text));
  must(back == (bpe.parts().prefix_space ? " " + text : text), "tokens give the text back");
  (void)bpe.encode_prompt(text);
}

const FuzzTarget kTokenizer("tokenizer", [](std::string_view bytes) {
  encode_and_back(*Bpe::load(fuzz_file("tokenizer.json", bytes)));
});

const FuzzTarget kMerges("merges", [](std::string_view bytes) {
  const auto vocabulary = fuzz_file("merges/encoder.json", next_part(bytes));
  fuzz_file("merges/vocab.bpe", bytes);
  encode_and_back(*Bpe::load(vocabulary));
});

}  // namespace
}  // namespace elinvar::test
