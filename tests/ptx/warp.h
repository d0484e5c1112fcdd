#pragma once
// The state of 32 threads that execute together, and of the block around them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/ptx/memory.h"
#include "tests/ptx/program.h"

namespace elinvar::ptx {

class RaceDetector;

struct Block {
  std::vector<unsigned char> shared;
  unsigned index = 0, threads = 0, blocks = 0;
  std::shared_ptr<const Memory::Blocks> memory;
  RaceDetector* races = nullptr;  // null if accesses are not watched
};

// A copy to shared memory that has begun (cp.async). Its target may not be read before the thread has waited for it.
struct AsyncCopy {
  unsigned char* to = nullptr;
  const unsigned char* from = nullptr;
  size_t given = 16;  // the rest becomes zero
  size_t bytes = 16;
  bool last_of_group = false;
};

// A product of a warpgroup that has begun (wgmma). Its sums may not be read before the warp has waited for it.
struct WarpgroupProduct {
  const std::vector<int>* sums = nullptr;
  uint64_t a = 0, b = 0;  // descriptors
  bool last_of_group = false;
};

struct alignas(64) RowOfLanes {
  uint32_t values[kLanes];
};

struct Warp {
  const Function* function = nullptr;
  uint64_t rows_of = 0;  // the number of the function for which the rows are laid out
  Block* block = nullptr;
  unsigned first_thread = 0;
  std::vector<RowOfLanes> rows;
  std::vector<Lanes> predicates;
  Lanes live = 0, at_barrier = 0, waiting_for_lanes = 0;
  int next[kLanes] = {};  // instruction of each lane while the warp is diverged or waits
  const unsigned char* parameters = nullptr;
  size_t parameter_stride = 0;  // from lane to lane: those of a called function differ
  std::vector<unsigned char> local, call_arguments;
  std::vector<AsyncCopy> copies[kLanes];
  std::vector<WarpgroupProduct> products;
  std::unique_ptr<Warp> called;
  const Warp* caller = nullptr;

  // The values of a register: a row, or two rows for types of 64 bits.
  template <class Value>
  Value* row(int index) {
    static_assert(sizeof(Value) == 4 || sizeof(Value) == 8);
    return reinterpret_cast<Value*>(rows[static_cast<size_t>(index)].values);
  }
};

// Prepares a warp for a launch: gives it its rows. A warp may run a function again and again; registers then have the
// values of the run before, as on a card.
void prepare(Warp& warp, const Function& function, Block& block, unsigned first_thread, const unsigned char* parameters,
             size_t parameter_stride);

// Begins a block of the launch with these lanes.
void start(Warp& warp, Lanes lanes);

// Runs until all lanes have exited (true) or wait at a barrier of the block (false).
bool run(Warp& warp);

}  // namespace elinvar::ptx
