#pragma once
// Predicts the time of a step and the memory of a worker in each arrangement that a job could have, from what its
// network needs (elastic/ARRANGEMENT.md, "Choosing an arrangement"). Pure functions; tools/training/network_needs.h
// measures.
#include <cstdint>
#include <string>
#include <vector>

#include "nn/segment_measurement.h"
#include "tools/training/memory_forecast.h"

namespace elinvar {

// An amount of which a part is divided among the members of a stage, with the virtual shards.
struct Divided {
  double common = 0, shards = 0;  // of what every member does, and of all virtual shards together
  double of(double portion) const { return common + portion * shards; }
  double all() const { return common + shards; }
};

// One segment of a network and one rank gradient.
struct SegmentNeeds {
  Divided forward, backward;  // seconds of the passes
  Divided held;               // bytes between the passes
  Divided more;               // .. and besides at the peak, without gradients of parameters
  ShardSums forward_sums, backward_sums;
  int64_t value = 0;  // bytes of what it gives
};

struct NetworkNeeds {
  std::vector<SegmentNeeds> segments;
  std::vector<int> homes;          // SegmentCosts::homes
  std::vector<int> first_readers;  // of each parameter: the segment whose backward pass completes its gradient
  int shards = 1;                  // virtual shards
  int virtual_ranks = 1;           // of the job
  int most_zero = kMostZero;       // the last stage of ZeRO that the configuration allows
  bool timed = true;               // seconds are those of a worker; otherwise they compare segments alone
  MemoryNeeds memory;              // with the segment and the virtual shard of each parameter
  double touch = 0;                // seconds of a step in which a worker finds the rows of sparse tables
  double batch = 0;                // seconds that it takes from the passes to read and digest a virtual rank's batch
  // Seconds of one process for the gradients of all parameters: the norm of a gradient, an update, the sum of two
  // gradients, the scaling and the digest of one, and a copy.
  double norm = 0, update = 0, sum = 0, scale = 0, digest = 0, copy = 0;
};

struct Cluster {
  int workers = 1;
  double latency = 0, bandwidth = 1;  // of a worker's link: seconds of a message, bytes per second in each direction
  // Seconds that it takes from the passes to send a byte and to get one meanwhile: 0 if processors are idle.
  double processor = 0;
  int64_t memory = 0;                // bytes of the device of a worker; 0: no limit
  std::vector<int> copies = {1, 2};  // Arrangement::copies to compare
};

// The parts of a step's time, in seconds.
struct StepTime {
  double computing = 0;  // passes of the busiest stage, and their batches
  double within = 0;     // .. and its waits for values of other virtual shards
  double bubble = 0;     // what is left until all stages have ended
  double exchange = 0;   // of gradients and parameters: waits, and processor time while a pass runs
  double update = 0;     // with sums, digests and copies of gradients and parameters
  double all() const { return computing + within + bubble + exchange + update; }
};

struct ArrangementEstimate {
  Arrangement arrangement;
  int dp = 1;                 // model replicas of equal size; 0: their sizes differ
  StepTime time;              // zero if the needs are not timed
  int64_t peak = 0;           // bytes of the device that computes, of the worker that needs most
  int64_t host = 0;           // .. and of its host, if that is a GPU
  bool fits = true;           // within the cluster's memory
  std::string text() const;   // as --arrangement and --copies name it
  std::string bound() const;  // the largest part of the time
};

// Returns the estimates of all arrangements that differ: those that fit first, the fastest first, and of equally fast
// ones (within a thousandth), and if times are not known, the simplest.
std::vector<ArrangementEstimate> estimate_arrangements(const NetworkNeeds& needs, int virtual_ranks,
                                                       const Cluster& cluster);

}  // namespace elinvar
