#pragma once
// Measures the cost of handing a short task to a team of threads: the engine's and OpenMP's, alternating in one
// process.

namespace elinvar::peers {

void run_team(int threads, int rounds);

}  // namespace elinvar::peers
