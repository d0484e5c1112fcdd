// Tensors in files: their elements, their room on the disk, and what is left of them.
#include "tensor/file_tensor.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/heap.h"
#include "tensor/ops/copy.h"
#include "tests/support/bits.h"
#include "tests/support/disk_faults.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

size_t open_files() { return paths_in("/proc/self/fd").size(); }

TEST(FileTensor, HasZerosAndThenWhatIsWritten) {
  const TemporaryFolder folder;
  Tensor x = zeros_in_file({3, 1001}, DType::f32, folder.path());
  EXPECT_TRUE(same_bits(x, Tensor::zeros({3, 1001})));
  EXPECT_FALSE(x.unique()) << "an operation would allocate its result in memory";
  fill(x, 2.0);
  Tensor row = x.select(0, 1);
  fill(row, 3.0);
  hand_back(row);
  read_ahead(x);
  EXPECT_EQ(x.slice(0, 0, 1).select(1, 1000).item(), 2.0);
  EXPECT_TRUE(same_bits(x.select(0, 1), Tensor::full({1001}, 3.0)));
  EXPECT_EQ(zeros_in_file({0, 3}, DType::f32, folder.path()).numel(), 0);
}

TEST(FileTensor, LeavesNoNameAndNoDescriptor) {
  const TemporaryFolder folder;
  const size_t before = open_files();
  const Tensor x = zeros_in_file({100}, DType::f32, folder.path()), y = zeros_in_file({100}, DType::f64, folder.path());
  EXPECT_EQ(entries(folder.path()), 0u);
  EXPECT_EQ(open_files(), before);
}

TEST(FileTensor, PagesThatAreHandedBackAreNoMemoryOfTheProcess) {
  constexpr int64_t kBytes = 32 << 20;
  const TemporaryFolder folder;
  Tensor x = zeros_in_file({kBytes / 4}, DType::f32, folder.path());
  const auto held = [] { return static_cast<int64_t>(resident_memory()); };
  const int64_t before = held();
  fill(x, 1.0);
  const int64_t filled = held();
  hand_back(x);
  EXPECT_GT(filled - before, kBytes * 3 / 4);
  EXPECT_LT(held() - before, kBytes / 4);
  EXPECT_EQ(x.select(0, kBytes / 4 - 1).item(), 1.0);
}

TEST(FileTensor, ADiskWithoutRoomIsAnErrorAtOnce) {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& place) {
    return message_of<Failure>([&] { zeros_in_file({1 << 20}, DType::f32, place); });
  };
  {
    const FullDisk full(1 << 16);
    EXPECT_NE(error(folder.path()).find("cannot reserve 4194368 bytes for " + folder.path()), std::string::npos);
    EXPECT_NE(error(folder.path()).find("make room on that disk or choose another directory"), std::string::npos);
    EXPECT_EQ(zeros_in_file({100}, DType::f32, folder.path()).numel(), 100);
  }
  EXPECT_EQ(error(folder.path()), "");
  EXPECT_EQ(entries(folder.path()), 0u);
  EXPECT_NE(error(folder / "absent").find("there is no folder"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::test
