#include "tests/emulation/cuda.h"

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/check.h"
#include "tensor/stream.h"

thread_local elinvar::emulation::Index threadIdx, blockIdx, blockDim, gridDim;

namespace elinvar::emulation {
namespace {

using boost::context::fiber;

constexpr size_t kWarp = 32;
constexpr size_t kStackBytes = size_t{256} << 10;

// The threads of one block. A fiber runs threads one after another until one of them waits: that one keeps the fiber,
// and the next begins in another, so that a kernel without barriers needs a single fiber for all.
class Block {
 public:
  Block(size_t threads, const std::function<void()>& kernel) : kernel_(kernel), threads_(threads) {}

  void run() {
    const size_t n = threads_.size();
    for (ascending_ = true; done_ < n; ascending_ = !ascending_) {
      bool moved = false;
      for (turn_ = 0; turn_ < n; ++turn_) {
        const size_t i = thread_at(turn_);
        if (threads_[i].state != State::fresh && threads_[i].state != State::ready) continue;
        moved = true;
        fiber suspended = threads_[i].state == State::fresh ? begin(i) : resume(i);
        if (suspended) threads_[current_].context = std::move(suspended);
      }
      if (moved) continue;
      for (Thread& thread : threads_) {
        invariant(thread.state == State::done || thread.state == State::at_block_barrier,
                  "a kernel waits in a part of a warp only");
        if (thread.state == State::at_block_barrier) thread.state = State::ready;
      }
    }
  }

  void wait_for_block() { wait(State::at_block_barrier); }

  void wait_for_warp() {
    const size_t first = current_ / kWarp * kWarp, last = std::min(first + kWarp, threads_.size());
    threads_[current_].state = State::at_warp_barrier;
    for (size_t i = first; i < last; ++i)
      if (threads_[i].state != State::at_warp_barrier && threads_[i].state != State::done) return suspend();
    for (size_t i = first; i < last; ++i)
      if (threads_[i].state == State::at_warp_barrier) threads_[i].state = State::ready;
    suspend();
  }

  uint64_t exchange(uint64_t value, int lane) {
    const size_t from = current_ / kWarp * kWarp + static_cast<size_t>(lane);
    invariant(from < threads_.size() && threads_[from].state != State::done, "a value of a thread that does not run");
    threads_[current_].offered = value;
    wait_for_warp();
    const uint64_t taken = threads_[from].offered;
    wait_for_warp();  // nobody offers anew before all have taken
    return taken;
  }

 private:
  enum class State { fresh, ready, at_block_barrier, at_warp_barrier, done };
  struct Thread {
    State state = State::fresh;
    fiber context;
    uint64_t offered = 0;
  };

  size_t thread_at(size_t turn) const { return ascending_ ? turn : threads_.size() - 1 - turn; }

  void enter(size_t i) {
    current_ = i;
    threadIdx.x = static_cast<unsigned>(i);
  }

  fiber begin(size_t i) {
    enter(i);
    threads_[i].state = State::ready;
    static thread_local boost::context::pooled_fixedsize_stack stacks(kStackBytes);
    return fiber(std::allocator_arg, stacks,
                 [this](fiber&& scheduler) {
                   scheduler_ = std::move(scheduler);
                   for (bool again = true; again;) {
                     const size_t self = current_;
                     waited_ = false;
                     kernel_();
                     threads_[self].state = State::done;
                     ++done_;
                     again = false;
                     if (waited_ || turn_ + 1 == threads_.size()) break;
                     const size_t next = thread_at(turn_ + 1);
                     if (threads_[next].state != State::fresh) break;
                     ++turn_;
                     threads_[next].state = State::ready;
                     enter(next);
                     again = true;
                   }
                   return std::move(scheduler_);
                 })
        .resume();
  }

  fiber resume(size_t i) {
    enter(i);
    return std::move(threads_[i].context).resume();
  }

  void wait(State state) {
    threads_[current_].state = state;
    suspend();
  }

  void suspend() {
    const size_t self = current_;
    scheduler_ = std::move(scheduler_).resume();
    enter(self);
    waited_ = true;
  }

  const std::function<void()>& kernel_;
  std::vector<Thread> threads_;
  fiber scheduler_;
  size_t current_ = 0, turn_ = 0, done_ = 0;
  bool ascending_ = true, waited_ = false;
};

thread_local Block* block = nullptr;
thread_local std::vector<uint64_t> shared_bytes;

}  // namespace

void run(int64_t blocks, int threads, size_t shared, const std::function<void()>& kernel) {
  cpu_stream().parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      // What was not written is NaN.
      shared_bytes.assign(shared / sizeof(uint64_t) + 1, ~uint64_t{0});
      gridDim = {static_cast<unsigned>(blocks), 1, 1};
      blockDim = {static_cast<unsigned>(threads), 1, 1};
      blockIdx = {static_cast<unsigned>(b), 0, 0};
      threadIdx = {};
      Block running(static_cast<size_t>(threads), kernel);
      block = &running;
      running.run();
      block = nullptr;
    }
  });
}

void* shared_memory() { return shared_bytes.data(); }
void block_barrier() { block->wait_for_block(); }
void warp_barrier() { block->wait_for_warp(); }
uint64_t exchange(uint64_t value, int lane) { return block->exchange(value, lane); }

}  // namespace elinvar::emulation
