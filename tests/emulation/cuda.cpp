#include "tests/emulation/cuda.h"

#include <atomic>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/stream.h"

thread_local elinvar::emulation::Index threadIdx, blockIdx, blockDim, gridDim;

namespace elinvar::emulation {
namespace {

using boost::context::fiber;

constexpr size_t kWarp = 32;
constexpr size_t kStackBytes = size_t{256} << 10;

thread_local std::vector<uint64_t> shared_bytes;
std::atomic<int64_t> matrix_accesses, bank_conflicts;

unsigned char* shared_at(uint64_t at, size_t bytes = 16) {
  invariant(at % bytes == 0 && at + bytes <= shared_bytes.size() * sizeof(uint64_t), "bytes that shared memory lacks");
  return reinterpret_cast<unsigned char*>(shared_bytes.data()) + at;
}

// The threads of one block. A fiber runs threads one after another until one of them waits. That thread keeps the
// fiber, and the next thread begins in another one, so a kernel without barriers needs a single fiber.
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

  // Every thread of the warp offers a value; take(offered) may read that of any lane.
  template <class F>
  void trade(uint64_t value, F take) {
    threads_[current_].offered = value;
    wait_for_warp();
    take([this](size_t lane) {
      const size_t from = current_ / kWarp * kWarp + lane;
      invariant(from < threads_.size() && threads_[from].state != State::done, "a value of a thread that does not run");
      return threads_[from].offered;
    });
    wait_for_warp();  // no thread offers again before all have taken
  }

  void load_matrices(uint32_t at, bool transposed, uint32_t (&pair)[4]) {
    trade(at, [&](auto offered) {
      const size_t lane = current_ % kWarp, g = lane / 4, t = lane % 4;
      for (size_t j = 0; j < 4; ++j) {
        const auto element = [&](size_t row, size_t i) {
          uint16_t bits;
          std::memcpy(&bits, shared_at(offered(8 * j + row)) + 2 * i, sizeof bits);
          return uint32_t{bits};
        };
        pair[j] = transposed ? element(2 * t, g) | element(2 * t + 1, g) << 16
                             : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
        if (lane == 0) count_access([&](size_t row) { return offered(8 * j + row); });
      }
    });
  }

  void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool signed_a, bool signed_b) {
    const auto value = [](uint32_t byte, bool with_sign) {
      return with_sign ? static_cast<int8_t>(byte) : static_cast<int32_t>(byte & 0xff);
    };
    struct Factors {
      const uint32_t *a, *b;
    };
    const Factors mine{a, b};
    const auto address = reinterpret_cast<uintptr_t>(&mine);  // of this thread's stack, which waits until all have read
    trade(address, [&](auto offered) {
      const auto factors = [&](size_t lane) { return *reinterpret_cast<const Factors*>(offered(lane)); };
      const size_t lane = current_ % kWarp, g = lane / 4, t = lane % 4;
      for (size_t of_k = 0; of_k < 8; ++of_k) {  // fours along k
        const uint32_t* row = factors(4 * g + of_k % 4).a + of_k / 4 * 2;
        for (size_t column = 0; column < 2; ++column) {
          const uint32_t four = factors(4 * (2 * t + column) + of_k % 4).b[of_k / 4];
          for (size_t part = 0; part < 2; ++part)
            for (int shift = 0; shift < 32; shift += 8)
              d[2 * part + column] += value(row[part] >> shift, signed_a) * value(four >> shift, signed_b);
        }
      }
    });
  }

  void copy_later(uint32_t to, const void* from, int bytes, bool there) {
    const auto size = static_cast<size_t>(bytes);
    std::memset(shared_at(to, size), 0xff, size);
    threads_[current_].copies.push_back({to, there ? from : nullptr, size});
  }

  void end_copies() { threads_[current_].copies.push_back({0, nullptr, 0}); }

  void wait_for_copies(int running) {
    std::vector<Copy>& copies = threads_[current_].copies;
    auto end = copies.end();  // of those that arrive
    for (int groups = 0; running > 0 && end != copies.begin(); --end)
      if ((end - 1)->bytes == 0 && groups++ == running) break;
    for (auto copy = copies.begin(); copy != end; ++copy) {
      if (copy->bytes == 0) continue;
      if (copy->from != nullptr) std::memcpy(shared_at(copy->to, copy->bytes), copy->from, copy->bytes);
      else std::memset(shared_at(copy->to, copy->bytes), 0, copy->bytes);
    }
    copies.erase(copies.begin(), end);
  }

 private:
  enum class State { fresh, ready, at_block_barrier, at_warp_barrier, done };
  struct Copy {
    uint32_t to;
    const void* from;  // null: zeros
    size_t bytes;      // 0: the end of a group
  };
  struct Thread {
    State state = State::fresh;
    fiber context;
    uint64_t offered = 0;
    std::vector<Copy> copies;  // pending copies
  };

  // Counts an access to eight rows; rows at the same place are read at once.
  template <class F>
  static void count_access(F row) {
    int64_t most = 0;
    for (size_t i = 0; i < 8; ++i) {
      int64_t in_its_banks = 1;
      for (size_t other = 0; other < i; ++other)
        if (row(other) != row(i) && row(other) % 128 == row(i) % 128) ++in_its_banks;
      most = std::max(most, in_its_banks);
    }
    ++matrix_accesses;
    bank_conflicts += most - 1;
  }

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
                     invariant(threads_[self].copies.empty(), "a kernel ends before what it copies has arrived");
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

}  // namespace

void run(int64_t blocks, int threads, size_t shared, const std::function<void()>& kernel) {
  cpu_stream().parallel_for(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      // Memory that was not written is NaN.
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
void load_matrices(uint32_t at, bool transposed, uint32_t (&pair)[4]) { block->load_matrices(at, transposed, pair); }
void multiply_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool signed_a, bool signed_b) {
  block->multiply_bytes(d, a, b, signed_a, signed_b);
}
MatrixLoads matrix_loads() { return {matrix_accesses, bank_conflicts}; }
void copy_later(uint32_t to, const void* from, int bytes, bool there) { block->copy_later(to, from, bytes, there); }
void end_copies() { block->end_copies(); }
void wait_for_copies(int running) { block->wait_for_copies(running); }

uint64_t exchange(uint64_t value, int lane) {
  uint64_t taken = 0;
  block->trade(value, [&](auto offered) { taken = offered(static_cast<size_t>(lane)); });
  return taken;
}

}  // namespace elinvar::emulation
