#pragma once
// What it costs to hand a short task to a team of threads: the engine's own beside OpenMP's, by turns in one process.

namespace elinvar::peers {

void run_team(int threads, int rounds);

}  // namespace elinvar::peers
