#pragma once
// Graphs of the emulated device (tensor/graph.h): recorded calls with their arguments, which are repeated.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/graph.h"

namespace elinvar::emulation {

// Returns the number of kernels and graphs that the host has started in this process.
int64_t launches();

// While one of these is in scope, there is no more memory for graphs.
class NoMoreMemory {
 public:
  NoMoreMemory();
  ~NoMoreMemory();
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;
};
void* take_segment(size_t bytes);  // memory for graphs; null if there is none

// Registers blocks on the device. Their numbers distinguish a block from a later one at the same address.
void add_block(const void* begin, size_t bytes);
void remove_block(const void* begin);

// A place in a graph whose data are complete: a download from there must find them unchanged.
struct MarkedPlace;
void check_unchanged(const MarkedPlace& place, const void* begin, size_t bytes);

}  // namespace elinvar::emulation
