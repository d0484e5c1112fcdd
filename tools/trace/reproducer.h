#pragma once
// One call of an op with its results: a safetensors file that `repro replay` repeats alone, on any backend.
//
// Tensors are named "argument.<name>" and, for the results of each side, "a.<name>" and "b.<name>". The metadata has
//   reproducer  "1"
//   op          its name
//   about       JSON: the step and the phase that it was called in
//   arguments   JSON: numbers with their values, tensors with their layout, in order (tools/trace/trace_file.h)
//   a, b        JSON: {"about": where that side was computed, "results": as `arguments`}
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/trace.h"

namespace elinvar {

struct Reproducer {
  struct Side {
    nlohmann::ordered_json about;
    TraceValues results;
  };
  std::string op;
  nlohmann::ordered_json about = {};
  TraceValues arguments = {};
  std::vector<Side> sides = {};  // one or two
};
inline constexpr const char* kSides[] = {"a", "b"};  // prefixes of the tensors' names

void write_reproducer(const std::filesystem::path& path, const Reproducer& reproducer);
Reproducer read_reproducer(const std::filesystem::path& path);  // tensors on the CPU, in their layout; throws Failure

// Returns the op's results on this device. Throws UsageError if this program has no such op or it rejects the
// arguments.
TraceValues call(const Reproducer& reproducer, Device device);

// Copies values to the CPU and keeps their layout; for places only the layout is copied.
TraceValues copied(const TraceValues& values);

// Copies x to a device in this layout, if it can be made: transposed, with gaps, expanded. Otherwise the copy is dense.
Tensor laid_out(const Tensor& x, const Shape& strides, Device device);

}  // namespace elinvar
