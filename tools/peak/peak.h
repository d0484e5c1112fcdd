#pragma once
// What this machine can do at most, on the current threads and instruction set: the yardstick of every other figure.
namespace elinvar::bench {

struct Peak {
  double gflops;    // fused multiply-adds on registers, two operations each
  double gb_per_s;  // read and write of a copy much larger than the caches
};
Peak measure_peak();

// In GFLOP/s, half a second each: the first of the above, and a tile of a product (tensor/tile.h) whose operands stay
// in the first-level cache, which is the most that a product can do.
double measure_registers();
double measure_tile();

}  // namespace elinvar::bench
