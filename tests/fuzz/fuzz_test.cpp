// Runs each fuzz target (tests/fuzz) over its corpus, and over a few hundred mutations that are always the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tensor/base/file.h"
#include "tensor/philox.h"
#include "tensor/tensor.h"
#include "tests/fuzz/limits.h"
#include "tests/fuzz/target.h"
#include "tests/places.h"

namespace elinvar::test {

void PrintTo(const FuzzTarget& target, std::ostream* out) { *out << target.name(); }

namespace {

namespace fs = std::filesystem;

// Returns the number of mutations of a target's whole corpus.
size_t mutations() { return std::getenv("ELINVAR_FULL") ? 20000 : 150; }

// The random draws of a mutation: a function of its key.
class Draws {
 public:
  explicit Draws(uint64_t key) : key_(key) {}
  size_t below(size_t n) { return philox(key_, drawn_++, 0, 0, 0).v[0] % n; }

 private:
  uint64_t key_;
  uint32_t drawn_ = 0;
};

std::string mutated(std::string bytes, const std::string& other, uint64_t key) {
  Draws draw(key);
  constexpr std::string_view kOdd[] = {std::string_view("\0\0\0\0", 4),
                                       "\xFF\xFF\xFF\xFF",
                                       "\x7F\xFF\xFF\xFF",
                                       "\x80",
                                       "-1",
                                       "18446744073709551616",
                                       "1e999",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "1e308",
                                       "nan",
                                       "\"",
                                       "[[[[[[[[",
                                       "}",
                                       "\n",
                                       "\\u0000",
                                       "null"};
  for (size_t changes = 1 + draw.below(4); changes > 0; --changes) {
    const size_t at = draw.below(bytes.size() + 1), length = std::min(bytes.size() - at, draw.below(64));
    switch (draw.below(7)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << draw.below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(draw.below(256));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, std::string(bytes, at, length));
        break;
      case 5:
        bytes.replace(at, std::min(bytes.size() - at, draw.below(2) * length), kOdd[draw.below(std::size(kOdd))]);
        break;
      default:
        bytes.replace(at, std::string::npos, other, std::min(at, other.size()), std::string::npos);
    }
  }
  return bytes;
}

class Fuzz : public testing::TestWithParam<FuzzTarget> {};

TEST_P(Fuzz, ReadsItsCorpusAndMutationsOfIt) {
  const fs::path folder = fs::path(ELINVAR_SOURCE_DIR) / "tests/fuzz/corpus" / GetParam().name();
  ASSERT_TRUE(fs::is_directory(folder)) << folder << " is missing: a target has inputs to begin with";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  std::vector<std::string> corpus;
  for (const fs::path& file : files) corpus.push_back(read_file(file));
  const auto run = [](const std::string& bytes) {
    const FuzzLimits limits(GetParam().name());
    GetParam().run(bytes);
  };
  for (const std::string& bytes : corpus) run(bytes);
  for (size_t i = 0; i < mutations(); ++i)
    run(mutated(corpus[i % corpus.size()], corpus[i * 7 % corpus.size()], key_of(GetParam().name()) + i));
}

// The limits themselves, in a separate process, which ends.
TEST(FuzzLimitsDeathTest, EndAProcessThatTakesTooMuch) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators end the process
  EXPECT_DEATH(
      {
        const FuzzLimits limits("hungry");
        std::vector<std::string> kept;
        while (true) kept.emplace_back(size_t{1} << 24, 'x');
      },
      "'hungry' takes more than 512 MiB");
#endif
  EXPECT_DEATH(
      {
        const FuzzLimits limits("large");
        (void)Tensor::empty({int64_t{1} << 28});
      },
      "'large' takes more than 512 MiB");
  EXPECT_DEATH(
      {
        const FuzzLimits limits("slow", 1);
        volatile int turns = 0;  // volatile: a loop without effects may be removed
        while (true) turns = (turns + 1) % 1000;
      },
      "'slow' takes more than 1 s of processor time");
}

INSTANTIATE_TEST_SUITE_P(Readers, Fuzz, testing::ValuesIn(fuzz_targets()),
                         [](const auto& target) { return std::string(target.param.name()); });

}  // namespace
}  // namespace elinvar::test
