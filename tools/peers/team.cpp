#include "tools/peers/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tensor/stream.h"

namespace elinvar::peers {
namespace {

// Computes a chain of products that takes about `rounds` times four cycles.
void work(int64_t rounds) {
  double x = 1.0;
  for (int64_t i = 0; i < rounds; ++i) x *= 0.999999;
  volatile double keep = x;
  static_cast<void>(keep);
}

double microseconds_a_call(int calls, const std::function<void()>& f) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // lets the other team's threads go to sleep
  f();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

double median(std::vector<double>& v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

}  // namespace

void run_team(int threads, int rounds) {
  set_threads(threads);
  fmt::print("\n{} thread{}: microseconds a task of so much work for each thread\n\n", threads,
             threads == 1 ? "" : "s");
  fmt::print("{:>10} {:>10} {:>10} {:>10}\n", "alone", "own", "OpenMP", "ratio");
  for (const int64_t amount : {0, 1000, 10'000, 100'000}) {
    const int calls = amount < 10'000 ? 2000 : amount < 100'000 ? 400 : 40;
    std::vector<double> alone, own, openmp, ratio;
    for (int r = 0; r < rounds; ++r) {
      alone.push_back(microseconds_a_call(calls, [&] { work(amount); }));
      own.push_back(microseconds_a_call(calls, [&] {
        cpu_stream().parallel_for(threads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) work(amount);
        });
      }));
      openmp.push_back(microseconds_a_call(calls, [&] {
#pragma omp parallel num_threads(threads)
        work(amount);
      }));
      ratio.push_back(openmp.back() / own.back());
    }
    fmt::print("{:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", median(alone), median(own), median(openmp), median(ratio));
  }
}

}  // namespace elinvar::peers
