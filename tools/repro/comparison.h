#pragma once
// Compares two runs by their directories: decides whether they are equal over the steps that both have, and otherwise
// where they first differ. A pure function of the two records. `repro diff` prints the result, and other commands build
// on it.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/run/run_record.h"
#include "tools/repro/elements.h"

namespace elinvar {

// The parts of a step, in the order in which each depends on the previous one.
enum class Phase { data, forward, gradient, reduction, update };
const char* name_of(Phase phase);

// A tensor whose digests differ, with the differing chunks (tensor/digest_tree.h) if it has several.
struct DifferingTensor {
  std::string name;
  std::vector<int64_t> chunks = {};
  int64_t chunk_elements = 0;
};

struct Divergence {
  int64_t step = 0;  // the first step whose facts differ
  Phase phase = Phase::data;
  std::vector<std::string> fields;  // fields of the ledger that differ in that step
  std::vector<int> vranks = {};     // virtual ranks whose data, loss or gradient are known to differ
  int of_vranks = 0;                // number of virtual ranks that could be compared
  bool gradient_possible = false;   // reduction: a rank gradient that the ledgers do not name may be what differs
  // The last earlier step after which the states are known to be equal; 0: the start.
  int64_t state_equal_after = 0;
  std::vector<DifferingTensor> tensors = {};  // by digest: of the rank gradient, the reduced gradient or the state
  size_t of_tensors = 0;                      // number of tensors compared; 0: there are no digests of that step
};

// The difference between the states at the first checkpoint that both saved, from the divergence on.
struct CheckpointDifference {
  int64_t step = 0;
  StateDifference state;
};

struct KeyDifference {
  std::string key, a, b;
  bool likely = false;  // settings: this one may be the reason for the divergence
};

struct Comparison {
  enum class Verdict {
    equal,
    explained,  // a setting that affects this point differs, or the data do
    allowed,    // the contract allows them to differ
    violation,  // no explanation: they should be equal
    unknown,    // no step is intact in both runs
  };
  Verdict verdict = Verdict::unknown;
  int64_t common = 0, first = 0, last = 0;  // number of steps that both have; the first and last of these
  int64_t states = 0;                       // number of these after which both know the state
  int64_t length_a = 0, length_b = 0;       // the last step of each run
  std::optional<Divergence> divergence;
  std::optional<CheckpointDifference> checkpoint;
  std::vector<KeyDifference> settings;     // settings that affect results and differ
  std::vector<std::string> allows;         // why the contract allows a difference
  std::vector<KeyDifference> environment;  // other differences of the environments
  std::vector<Damage> damage_a, damage_b;

  bool damaged() const;  // data between two intact steps are missing, so some steps could not be compared
};

const char* name_of(Comparison::Verdict verdict);

Comparison compare(const RunRecord& a, const RunRecord& b);

// Explains why two runs with run.numerics = "fast" may have different bits: they used different models of GPUs. "" if
// they did not.
std::string other_kinds(const RunRecord& a, const RunRecord& b);

// Returns 0: equal; 1: different, also if the difference is explained or allowed; 3: nothing differs, but damage hides
// some steps or all.
int exit_code_of(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);
std::string to_text(const Comparison& comparison);  // for people; begins with the verdict

// Compares the environments of two runs and of their workers, key by key ("libraries.zmq"). `all`: includes equal keys.
std::vector<KeyDifference> environment_differences(const RunRecord& a, const RunRecord& b, bool all = false);

}  // namespace elinvar
