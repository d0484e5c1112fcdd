#pragma once
// What a step of a run computed, op by op, as a file of lines (`repro trace`), and where two such files part.
//
//   {"trace":2,"step":42,"from":40,"device":"cpu","isa":"avx512","threads":2,"names":{"<digest>":["model.fc.b",..]}}
//   {"step":41,"batch":..}                      of each step that was done again, as in a ledger (elastic/LEDGER.md)
//   {"op":0,"phase":"leaf 0 forward","name":"dropout","arguments":[..],"results":[..]}
//
// A tensor is {"name":"x","dtype":"float32","shape":[8,3],"digest":".."} and has "strides" where it is not contiguous;
// it has no dtype where there is none, and no digest where it is only written. A number is {"name":"p","value":"0.1"}.
// `names` says of tensors what they are outside of ops: the state before the step, and batches. Equal ones share a
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
  std::string number = {};  // or a tensor:
  std::optional<DType> dtype = {};
  Shape shape = {}, strides = {};
  std::string digest = {};
  bool is_tensor = false;

  // Apart from the elements.
  bool same_form(const TracedValue& other) const;
  std::string text() const;  // "x float32 (8, 3)", "p = 0.1"
};

struct TracedOp {
  std::string phase, name;
  std::vector<TracedValue> arguments, results;
};

struct Trace {
  nlohmann::ordered_json header;
  std::vector<LedgerLine> facts;  // of steps
  std::vector<TracedOp> ops;
};

std::vector<TracedValue> described(const TraceValues& values);  // digests the tensors

nlohmann::ordered_json to_json(const TracedValue& value);
TracedValue traced_value_from(const nlohmann::ordered_json& json);  // throws nlohmann::json::exception or UsageError
void write_trace(const std::filesystem::path& path, const Trace& trace);
Trace read_trace(const std::filesystem::path& path);  // throws Failure

// What a tensor is outside of ops, if it is anything, by its digests on two sides: where several are equal on one side,
// what it is on both.
std::vector<std::string> known_as(const Trace& a, const std::string& digest_a, const Trace& b,
                                  const std::string& digest_b);

// The first op in which two traces of one step differ, and how.
struct Parting {
  enum class What {
    nothing,
    op,        // the arguments agree, the results do not
    argument,  // a tensor that no op made differs
    number,    // an argument that is a number differs: the configuration, or what was computed from it outside of ops
    program,   // these are different ops: the programs differ
  };
  What what = What::nothing;
  size_t op = 0;           // its place in both
  std::string value = {};  // the first that differs, by its name
};
Parting first_parting(const Trace& a, const Trace& b);

}  // namespace elinvar
