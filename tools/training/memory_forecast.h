#pragma once
// The memory of a worker in a step, predicted from what a network needs (elastic/ARRANGEMENT.md, "Memory").
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/gradient_layout.h"
#include "elastic/step/arrangement.h"
#include "elastic/step/model_replicas.h"
#include "nn/offload.h"
#include "tensor/shape.h"

namespace elinvar {

// Free blocks between those in use, and what libraries allocate: real peaks were up to 4.2 % above predictions without
// it.
inline constexpr double kHeapSpare = 0.045;
// A sparse table (nn/touched_rows.h).
struct TableNeeds {
  int64_t cut = 0;    // it is cut at multiples of this many elements (ShardOptions::tables)
  int64_t state = 0;  // bytes of the optimiser's state of the whole table
  int64_t rows = 0;   // bytes that each worker holds for the touched rows: their values and numbers
};

// Workers that compute on GPUs.
struct GpuNeeds {
  // Each has a GPU of its own, and up to ZeRO's first stage they exchange gradients as a group (PROTOCOL.md, "Groups of
  // GPUs"), so that gradients and their sums lie there.
  bool group = false;
  int64_t context = 0;  // bytes of a GPU that no tensor has: those of the program and its libraries
  int64_t batches = 0;  // bytes of the inputs there: those in use, and those sent ahead
  bool graphs = false;  // rank gradients that a worker computes alone are graphs, which keep their tensors
};

struct MemoryNeeds {
  std::vector<Shape> parameters;          // float32
  std::vector<std::string> names = {};    // of the parameters; empty: parts of a checkpoint are taken to be equal
  std::vector<Shape> gradients = {};      // those of sparse tables have other shapes; empty: as the parameters
  std::map<int, TableNeeds> tables = {};  // by parameter
  std::optional<TensorParts> parts = {};  // with tensor or pipeline parallelism
  int slots = 0;                          // tensors of the optimiser for each other parameter
  Offload offload = {};                   // where they are
  std::optional<GpuNeeds> gpu = {};       // none: workers compute on CPUs
  bool average = false;                   // there is an average of each parameter
  int64_t other_state = 0;                // bytes that every worker holds besides: buffers, and averages of them
  int64_t process = 0;                    // bytes of a process that has not built the network: the program itself
  double spare = 0;                       // what the heap holds besides, as a part of the peak
  bool checkpoints = true;                // there are checkpoints before the end, for which memory is held
};

struct WorkerLoad {
  int virtual_ranks = 0;
  int first = 0;  // .. of them; the others follow it
  ReplicaPlace place = {};
  // For each of these rank gradients, the most bytes of the device that passes take until it ends
  // (tools/training/pass_memory.h). The last entry counts for further ones, too.
  std::vector<int64_t> passes = {};
};

// In bytes.
struct MemoryForecast {
  int64_t parameters = 0, optimizer = 0, average = 0;  // held between steps
  int64_t offloaded = 0;  // of the optimizer, outside the device's memory except for a few parts
  int64_t snapshot = 0;   // for this worker's part of a checkpoint; not held for the last one
  int64_t peak = 0;       // of the device that computes: on a CPU of the process, in the last rank gradient of a step
  int64_t host = 0;       // .. and of its host, if that is a GPU
};

int64_t gradient_bytes(const MemoryNeeds& needs, size_t parameter);
// Returns whether the optimizer's state is not on the device that computes.
bool is_elsewhere(const MemoryNeeds& needs);
// Returns the bytes of the parameters, and of all that is kept for each of them between steps.
int64_t state_bytes(const MemoryNeeds& needs);

// Returns the memory of each worker of a job.
std::vector<MemoryForecast> forecast_memory(const MemoryNeeds& needs, const Arrangement& arrangement,
                                            const std::vector<WorkerLoad>& workers);

}  // namespace elinvar
