// UTF-8 as symbols.
#include "data/vocabulary.h"
#include "tests/fuzz/target.h"

namespace elinvar::test {
namespace {

const FuzzTarget kText("text", [](std::string_view bytes) {
  const CharacterVocabulary vocabulary(bytes);
  must(vocabulary.decode_all(vocabulary.encode(bytes)) == bytes, "symbols give the text back");
});

}  // namespace
}  // namespace elinvar::test
