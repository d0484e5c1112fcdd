#pragma once
// The ops of one step of a run, as a file of lines (`repro trace`), and the comparison of two such files.
//
//   {"trace":2,"step":42,"from":40,"device":"cpu","isa":"avx512","threads":2,"names":{"<digest>":["model.fc.b",..]}}
//   {"step":41,"batch":..}                      each repeated step, as in a ledger (elastic/LEDGER.md)
//   {"op":0,"phase":"leaf 0 forward","name":"dropout","arguments":[..],"results":[..]}
//
// A tensor is {"name":"x","dtype":"float32","shape":[8,3],"digest":".."}, with "strides" if it is not contiguous; it
// has no dtype if it is undefined, and no digest if it is only written. A number is {"name":"p","value":"0.1"}. `names`
// maps digests to the tensors' names outside of ops: the state before the step, and batches. Equal tensors share a
// digest.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger/ledger.h"
#include "tensor/trace.h"

namespace elinvar {

inline constexpr int kTraceVersion = 2;

struct TracedValue {
  std::string name;
  std::string number = {};  // set for a number; the fields below are for a tensor
  std::optional<DType> dtype = {};
  Shape shape = {}, strides = {};
  std::string digest = {};
  bool is_tensor = false;

  // Whether both are equal except for the elements.
  bool same_form(const TracedValue& other) const;
  std::string text() const;  // "x float32 (8, 3)", "p = 0.1"
};

struct TracedOp {
  std::string phase, name;
  std::vector<TracedValue> arguments, results;
};

struct Trace {
  nlohmann::ordered_json header;
  std::vector<LedgerLine> facts;  // ledger lines of the repeated steps
  std::vector<TracedOp> ops;
};

std::vector<TracedValue> described(const TraceValues& values);  // digests the tensors

nlohmann::ordered_json to_json(const TracedValue& value);
TracedValue traced_value_from(const nlohmann::ordered_json& json);  // throws nlohmann::json::exception or UsageError
void write_trace(const std::filesystem::path& path, const Trace& trace);
Trace read_trace(const std::filesystem::path& path);  // throws Failure

// Returns the names outside of ops of a tensor with these digests; if several tensors are equal on one side, the names
// common to both sides.
std::vector<std::string> known_as(const Trace& a, const std::string& digest_a, const Trace& b,
                                  const std::string& digest_b);

// The first op in which two traces of one step differ, and how.
struct Parting {
  enum class What {
    nothing,
    op,        // the arguments agree, the results differ
    argument,  // a tensor differs that no op has made
    number,    // a number differs: the configuration, or a computation outside of ops
    program,   // the ops themselves differ, so the programs do
  };
  What what = What::nothing;
  size_t op = 0;           // index in both traces
  std::string value = {};  // name of the first value that differs
};
Parting first_parting(const Trace& a, const Trace& b);

}  // namespace elinvar
