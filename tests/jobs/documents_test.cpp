// Runs the commands in the documents, so that a reader who copies them gets the promised results.
//
// Each document is one shell session in a folder that looks like the root of the project: build/bin has the programs.
//   ```toml      a block whose first line is `# NAME.toml` is written to that file
//   ```sh        every line is run; the session ends at the first one that fails
//   ```console   a transcript: lines after "$ " are run ("> " continues one). Shown results that do not depend on
//                the machine (final, validation, equal) must be printed
// A comment may state `# exit code N`, which is then expected, or why a test cannot run the line: one of kReasons in
// square brackets, as in `# [needs a GPU]`.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>
#include <sstream>

#include "tensor/base/file.h"
#include "tests/jobs/train_process.h"
#include "tests/places.h"
#include "tests/support/documents.h"
#include "tools/cli/program_beside.h"

namespace elinvar::test {
namespace {

namespace fs = std::filesystem;

constexpr std::array kReasons = {"needs a GPU", "needs the network", "needs a second host", "needs Slurm",
                                 "needs clang", "needs oneDNN",      "needs PyTorch",       "takes minutes"};

bool is_shell(const DocumentBlock& block) { return block.language == "sh" || block.language == "console"; }

// Returns the line as the session runs it; "" if a test cannot.
std::string runnable(const std::string& line) {
  std::smatch match;
  if (std::regex_search(line, match, std::regex(R"(#.*\[((needs|takes) [^\]]*)\])"))) {
    EXPECT_TRUE(std::find(kReasons.begin(), kReasons.end(), match[1].str()) != kReasons.end())
        << "no reason that kReasons has: " << line;
    return "";
  }
  if (std::regex_search(line, match, std::regex(R"(^(.*\S)\s*#.*\bexit code ([0-9]+))")))
    return "code=0; " + match[1].str() + " || code=$?; test $code = " + match[2].str();
  return line;
}

struct Session {
  std::string script;
  std::vector<std::string> printed;  // lines that must be printed
};

void add_transcript(const DocumentBlock& block, Session& session) {
  for (const std::string& line : block.lines) {
    if (line.starts_with("$ ")) session.script += runnable(line.substr(2)) + "\n";
    if (line.starts_with("> ")) session.script += line.substr(2) + "\n";
    for (const char* word : {"final ", "validation ", "equal: "})
      if (line.starts_with(word)) session.printed.push_back(line);
  }
}

class DocumentCommands : public testing::TestWithParam<std::string>, protected TrainRuns {
 protected:
  // Makes a folder that looks like the root of the project.
  void SetUp() override {
    for (const char* folder :
         {"tensor", "autograd", "nn", "data", "comm", "elastic", "models", "tools", "tests", "examples", "README.md"})
      if (fs::exists(fs::path(ELINVAR_SOURCE_DIR) / folder))
        fs::create_symlink(fs::path(ELINVAR_SOURCE_DIR) / folder, here_(folder));
    fs::create_directory(here_("build"));
    fs::create_symlink(program_beside(""), here_("build/bin"));
  }

  fs::path here_(const std::string& name) const {
    fs::create_directories(folder_ / "here");
    return folder_ / "here" / name;
  }
};

TEST_P(DocumentCommands, Run) {
  Session session;
  for (const DocumentBlock& block : document(GetParam()).blocks) {
    std::smatch name;
    if (block.language == "toml" && !block.lines.empty() &&
        std::regex_match(block.lines[0], name, std::regex("# ([a-z_]+\\.toml)"))) {
      std::string text;
      for (const std::string& line : block.lines) text += line + "\n";
      folder_.write("here/" + name[1].str(), text);
    }
    if (block.language == "console") add_transcript(block, session);
    if (block.language == "sh")
      for (const std::string& line : block.lines) session.script += runnable(line) + "\n";
  }
  const std::string script = folder_.write(
      "session.sh", "set -euo pipefail\ncd '" + here_("").string() + "'\nexec 2>&1\nset -x\n" + session.script);
  const Ended ended = wait(spawn_words({"bash", script}, "session"), "session", std::chrono::seconds(550));
  ASSERT_EQ(ended.code, 0) << "the commands of " << GetParam() << ":\n" << ended.out << ended.err;
  for (const std::string& line : session.printed)
    EXPECT_NE(("\n" + ended.out).find("\n" + line + "\n"), std::string::npos)
        << GetParam() << " shows what is not printed: " << line << "\n"
        << ended.out;
}

std::vector<std::string> with_commands() {
  std::vector<std::string> paths;
  for (const Document& document : documents())
    if (std::any_of(document.blocks.begin(), document.blocks.end(), is_shell)) paths.push_back(document.path);
  return paths;
}

INSTANTIATE_TEST_SUITE_P(, DocumentCommands, testing::ValuesIn(with_commands()), [](const auto& document) {
  return std::regex_replace(document.param, std::regex("[^A-Za-z0-9]"), "_");
});

}  // namespace
}  // namespace elinvar::test
