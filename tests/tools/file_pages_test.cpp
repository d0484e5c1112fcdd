#include "tools/training/file_pages.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/heap.h"

namespace elinvar {
namespace {

// A child's memory has the pages of its parent only once it has read them.
TEST(FilePages, AChildThatTouchesThemHasTheMemoryOfItsParent) {
  const auto all = static_cast<double>(resident_memory());
  const FilePages pages;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto before = static_cast<double>(resident_memory());
    pages.touch();
    const auto after = static_cast<double>(resident_memory());
    _exit(before < 0.8 * all && after > 0.95 * all ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace elinvar
