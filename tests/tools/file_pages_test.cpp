#include "tools/training/file_pages.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/heap.h"

namespace elinvar {
namespace {

// A child's memory has the pages of its parent only once it has read them. The bounds are wide because the system may
// give a child neighbours of a page that it has read, before it counts them.
TEST(FilePages, AChildThatTouchesThemHasTheMemoryOfItsParent) {
  const FilePages pages;
  if (pages.count() == 0) GTEST_SKIP() << "the system does not say which pages are of files";
  const double of_pages = static_cast<double>(pages.count()) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int64_t before = resident_memory();
    pages.touch();
    const auto grown = static_cast<double>(resident_memory() - before);
    _exit(grown > 0.5 * of_pages && grown < 1.1 * of_pages ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace elinvar
