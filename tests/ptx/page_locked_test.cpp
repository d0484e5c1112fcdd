// Page-locked memory on the interpreter when the host has no more: blocks that no copy uses are given back.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tensor/base/failure.h"
#include "tensor/gpu_stream.h"
#include "tensor/transfer.h"
#include "tests/ptx/runtime/page_locked.h"
#include "tests/ptx/runtime/queue.h"

namespace elinvar::ptx {
namespace {

TEST(PtxPageLocked, IdleBlocksAreGivenBackIfTheHostHasNoMore) {
  Scheduler::instance().use(emulation::Schedule::parse("late"));
  constexpr size_t kIdle = 1 << 20, kBusy = 3 << 20, kMore = 8 << 20;
  CudaStream& stream = gpu_stream<Cuda>(0);
  const std::shared_ptr<void> there = stream.allocate(kBusy);
  std::unique_ptr<CopyUnderWay> copy;
  {
    const std::shared_ptr<void> idle = allocate_page_locked(stream, kIdle), busy = allocate_page_locked(stream, kBusy);
    std::memset(busy.get(), 7, kBusy);
    copy = begin_upload(stream, there.get(), busy.get(), kBusy);
  }
  const size_t held = page_locked_bytes();
  limit_page_locked(held - kIdle + kMore);
  const std::shared_ptr<void> more = allocate_page_locked(stream, kMore);
  EXPECT_EQ(page_locked_bytes(), held - kIdle + kMore) << "the idle block, and not the one that is being copied";
  copy->wait();
  std::vector<char> sent(kBusy);
  stream.copy_out(sent.data(), there.get(), kBusy);
  EXPECT_EQ(sent, std::vector<char>(kBusy, 7));
  EXPECT_THROW(static_cast<void>(allocate_page_locked(stream, kMore)), Failure);
  EXPECT_EQ(page_locked_bytes(), held - kIdle - kBusy + kMore) << "its copy is done";
}

}  // namespace
}  // namespace elinvar::ptx
