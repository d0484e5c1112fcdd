#pragma once
// Graphs of the emulated device (tensor/graph.h): calls that are kept, with their arguments, and made again.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/graph.h"

namespace elinvar::emulation {

// Kernels and graphs that the host has started in this process.
int64_t launches();

// Without more memory for graphs, while one of these is in scope.
class NoMoreMemory {
 public:
  NoMoreMemory();
  ~NoMoreMemory();
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;
};
void* take_segment(size_t bytes);  // for graphs; null: there is no more

// Blocks on the device. Whoever holds an address knows by the number whether it still means the same block.
void add_block(const void* begin, size_t bytes);
void remove_block(const void* begin);

// What a download finds complete: a place in a graph.
struct MarkedPlace;
void check_unchanged(const MarkedPlace& place, const void* begin, size_t bytes);

}  // namespace elinvar::emulation
