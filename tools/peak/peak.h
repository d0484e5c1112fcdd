#pragma once
// What this machine can do at most, on the current threads and instruction set: the yardstick of every other figure.
namespace elinvar::bench {

struct Peak {
  double gflops;    // fused multiply-adds on registers, two operations each
  double gb_per_s;  // read and write of a copy much larger than the caches
};
Peak measure_peak();
double measure_gflops();  // the first of them alone, in half a second

}  // namespace elinvar::bench
