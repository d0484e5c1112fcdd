#pragma once
// Synthetic traces that resemble published ones. The same seed gives the same trace.
#include "tools/pool/sim/dice.h"
#include "tools/pool/sim/trace.h"

namespace elinvar::pool {

// Jobs as in Microsoft's Philly cluster (Jeon et al., "Analysis of large-scale multi-tenant GPU clusters", ATC'19):
// most ask for one GPU, few for many; durations have a long tail (log-normal); arrivals are random, more by day than by
// night.
struct Arrivals {
  int jobs = 100;
  double between = 60;        // mean seconds between arrivals
  double median_time = 1500;  // seconds of a job alone with its fixed size on the kind it asks for
  double sigma = 1.3;         // of the logarithm of the duration
  double longest = 6 * 3600;
  std::vector<std::pair<int, double>> sizes = {
      {1, 0.55}, {2, 0.15}, {4, 0.15}, {8, 0.11}, {16, 0.04}};  // (size, frequency)
  double grow = 1, shrink = 1;                                  // max = fixed * grow, min = max(1, fixed / shrink)
  std::vector<std::string> asked_kind;  // each job asks for one of these and allows all; none: the table's kinds
  std::vector<std::string> models;      // none: all of the table's
};
std::vector<TraceJob> philly_like(uint64_t seed, const Arrivals& arrivals, const Table& table);

// Returns how long a node of a supercomputer is idle between two ordinary jobs, as MalleTrain's authors found: median
// 475 s, mean 1205 s, 90th percentile 3348 s. No log-normal distribution has all three (with the first two its 90th
// percentile is 2730 s); a mixture of two exponentials has: mean 417 s with probability 0.653, else 2688 s.
double idle_fragment(Dice& dice);

// `nodes` of one kind that are idle for such fragments and busy in between (exponential), so that each is idle for a
// fraction `idle` of the time. They go with a notice.
std::vector<TraceHost> fragments(uint64_t seed, int nodes, const std::string& kind, double seconds, double idle,
                                 double notice);

// Hosts that are permanent except for failures (exponential, mean `between_failures` per host; kNever: none), after
// which they return within minutes.
std::vector<TraceHost> cluster(uint64_t seed, int hosts, int slots, const std::string& kind, double seconds,
                               double between_failures);

}  // namespace elinvar::pool
