// tools/fetch-data with its own list, whose files are in a folder.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <regex>

#include "tensor/base/file.h"
#include "tests/jobs/train_process.h"
#include "tests/places.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

class FetchData : public testing::Test {
 protected:
  static constexpr const char* kHello = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
  void SetUp() override {
    if (std::system("command -v curl > /dev/null") != 0) GTEST_SKIP() << "curl is not installed: tools/setup";
    served_.write("hello.txt", "hello\n");
    served_.write("pack/inner/a.txt", "hello\n");
    ASSERT_EQ(std::system(("tar -czf " + at(served_, "pack.tgz") + " -C " + served_.path() + " pack").c_str()), 0);
    const Ended sum = shell("sha256sum " + at(served_, "pack.tgz"));
    const std::string url = "file://" + served_.path();
    list_ = here_.write("list", "# comment\n\nhello text/hello.txt " + std::string(kHello) + " " + url +
                                    "/hello.txt\n" + "pack pack.tgz sha256:" + sum.out.substr(0, 64) + " " + url +
                                    "/pack.tgz pack\n" + "wrong wrong.txt md5:00000000000000000000000000000000 " + url +
                                    "/hello.txt\n" + "gone gone.txt " + kHello + " " + url + "/gone.txt\n");
  }
  static std::string at(const TemporaryFolder& folder, const char* name) { return (folder / name).string(); }
  Ended shell(const std::string& command) const {
    Ended ended;
    FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
    char bytes[4096];
    for (size_t n = 0; pipe && (n = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;) ended.out.append(bytes, n);
    const int status = pipe ? ::pclose(pipe) : -1;
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ended;
  }
  Ended fetch(const std::string& arguments) const {
    return shell("cd " + here_.path() + " && " ELINVAR_SOURCE_DIR "/tools/fetch-data --sets " + list_ + " " +
                 arguments);
  }
  TemporaryFolder served_, here_;
  std::string list_;
};

TEST_F(FetchData, BringsFilesAndFolders) {
  const Ended both = fetch("hello pack");
  EXPECT_EQ(both.code, 0) << both.out;
  EXPECT_EQ(read_file(here_ / "data/text/hello.txt"), "hello\n");
  EXPECT_EQ(read_file(here_ / "data/pack/inner/a.txt"), "hello\n");
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(here_ / "data")) files += entry.is_regular_file();
  EXPECT_EQ(files, 2u) << "nothing else is left";
  EXPECT_NE(fetch("hello pack").out.find("data/pack is there"), std::string::npos);
}

TEST_F(FetchData, GoesOnWhereADownloadBrokeOff) {
  here_.write("data/text/hello.txt.part", "hel");
  EXPECT_EQ(fetch("hello").code, 0);
  EXPECT_EQ(read_file(here_ / "data/text/hello.txt"), "hello\n");
  EXPECT_FALSE(fs::exists(here_ / "data/text/hello.txt.part"));
  // One complete file that lacks only its name, and one that is the beginning of another file.
  here_.write("other/text/hello.txt.part", "hello\n");
  EXPECT_EQ(fetch("hello --into other --mirror file:///nowhere").code, 0);
  here_.write("third/text/hello.txt.part", "jel");
  EXPECT_EQ(fetch("hello --into third").code, 3);
  EXPECT_EQ(fetch("hello --into third").code, 0);
}

TEST_F(FetchData, TakesNothingThatIsNotWhatItShouldBe) {
  const Ended wrong = fetch("wrong");
  EXPECT_EQ(wrong.code, 3);
  EXPECT_NE(wrong.out.find("expected md5:0000"), std::string::npos) << wrong.out;
  EXPECT_NE(wrong.out.find("found md5:b1946ac92492d2347c6235b4d2611184"), std::string::npos) << wrong.out;
  EXPECT_FALSE(fs::exists(here_ / "data/wrong.txt"));
  EXPECT_FALSE(fs::exists(here_ / "data/wrong.txt.part"));
}

TEST_F(FetchData, SaysWhatToDoWithoutANetwork) {
  const Ended gone = fetch("gone");
  EXPECT_EQ(gone.code, 3);
  for (const std::string& word : {"file://" + served_.path() + "/gone.txt", std::string("as gone.txt, ") + kHello,
                                  std::string("tools/fetch-data gone --from THAT_FOLDER")})
    EXPECT_NE(gone.out.find(word), std::string::npos) << gone.out;
  const std::string by_hand = here_.path() + "/by_hand";
  here_.write("by_hand/gone.txt", "hello\n");
  const Ended from = fetch("gone --from " + by_hand);
  EXPECT_EQ(from.code, 0) << from.out;
  EXPECT_EQ(read_file(here_ / "data/gone.txt"), "hello\n");
  EXPECT_EQ(fetch("hello --from " + by_hand).code, 3);
}

TEST_F(FetchData, NamesTheSetsThatThereAre) {
  EXPECT_EQ(fetch("").code, 2);
  const Ended unknown = fetch("helo");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.out.find("there is no set 'helo'"), std::string::npos);
  EXPECT_NE(unknown.out.find("sets: hello pack wrong gone"), std::string::npos) << unknown.out;
}

// The project's list: each line has a set, a file, a checksum of the right length, and a URL.
TEST(FetchDataSets, AreWellFormed) {
  const std::string text = read_file(std::string(ELINVAR_SOURCE_DIR) + "/tools/fetch-data.sets");
  const std::regex line(R"([a-z0-9-]+ [a-z0-9./-]+ (sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}) https://\S+( [a-z0-9-]+)?)");
  size_t begin = 0, files = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string one = text.substr(begin, end - begin);
    if (one.empty() || one[0] == '#') continue;
    ++files;
    EXPECT_TRUE(std::regex_match(one, line)) << one;
  }
  EXPECT_EQ(files, 13u);
}

}  // namespace
}  // namespace elinvar::test
