#pragma once
// The peak performance of this machine with the current threads and instruction set, for comparison with measurements.
namespace elinvar::bench {

struct Peak {
  double gflops;    // fused multiply-adds on registers, two operations each
  double gb_per_s;  // read and write of a copy much larger than the caches
};
Peak measure_peak();

// In GFLOP/s, half a second each: multiply-adds on registers (Peak::gflops), and a tile of a product (tensor/tile.h)
// whose operands stay in the first-level cache, which bounds the speed of products.
double measure_registers();
double measure_tile();

}  // namespace elinvar::bench
