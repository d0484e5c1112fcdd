// Files, pipes and standard streams as the output of a command.
#include "tools/cli/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/support/odd_files.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

TEST(OutputFile, ReplacesAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.write("a.csv", "old, and longer");
  check_output(path);
  write_output(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(message_of<Failure>([&] { check_output(folder / "absent" / "a.csv"); }).substr(0, 13), "cannot create");
}

TEST(OutputFile, GoesToAPipe) {
  const TemporaryFolder folder;
  const std::string path = folder / "pipe", text(1 << 20, 'x');
  make_pipe(path);
  check_output(path);
  std::string got;
  std::thread reader([&] {
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    std::string piece(1 << 16, ' ');
    for (ssize_t n; (n = ::read(descriptor, piece.data(), piece.size())) > 0;)
      got.append(piece, 0, static_cast<size_t>(n));
    ::close(descriptor);
  });
  write_output(path, text);
  reader.join();
  EXPECT_EQ(got, text);
}

// The shell has opened the file of a redirected stream; what was printed before stays.
TEST(OutputFile, GoesToStandardOutputBehindWhatWasPrinted) {
  const TemporaryFolder folder;
  const std::string path = folder.write("out", "");
  const int before = ::dup(STDOUT_FILENO), file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  std::fflush(stdout);
  ::dup2(file, STDOUT_FILENO);
  std::fputs("printed\n", stdout);
  check_output("/dev/stdout");
  write_output("/dev/stdout", "written\n");
  std::fputs("printed again\n", stdout);
  std::fflush(stdout);
  ::dup2(before, STDOUT_FILENO);
  ::close(before);
  ::close(file);
  EXPECT_EQ(read_file(path), "printed\nwritten\nprinted again\n");
  EXPECT_TRUE(std::filesystem::is_symlink("/dev/stdout"));
}

}  // namespace
}  // namespace elinvar::test
