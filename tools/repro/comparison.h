#pragma once
// Compares two runs by their directories: whether they are equal over the steps that both have, and otherwise where
// they differ first. A pure function of the two records; `repro diff` prints the result, and other commands build on
// it.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/run/run_record.h"
#include "tools/repro/elements.h"

namespace elinvar {

// The parts of a step, in the order in which one follows from the other.
enum class Phase { data, forward, leaf, reduction, update };
const char* name_of(Phase phase);

// A tensor whose digests differ, and which of its chunks (tensor/digest_tree.h) do, where it has several.
struct DifferingTensor {
  std::string name;
  std::vector<int64_t> chunks = {};
  int64_t chunk_elements = 0;
};

struct Divergence {
  int64_t step = 0;  // the first whose facts differ
  Phase phase = Phase::data;
  std::vector<std::string> fields;  // of the ledger, that differ in that step
  std::vector<int> vranks = {};     // virtual ranks whose data, loss or leaf gradient differ, as far as is known
  int of_vranks = 0;                // among so many that could be compared
  bool leaf_possible = false;       // reduction: a leaf that the ledgers do not name may be what differs
  int64_t state_equal_after = 0;    // the last step before, after which the states are known to be equal; 0: the start
  std::vector<DifferingTensor> tensors = {};  // by their digests: of the leaf, the reduced gradient or the state
  size_t of_tensors = 0;                      // among so many; 0: there are no digests of that step
};

// How the states differ at the first checkpoint that both saved, from the divergence on.
struct CheckpointDifference {
  int64_t step = 0;
  StateDifference state;
};

struct KeyDifference {
  std::string key, a, b;
  bool likely = false;  // of a setting: it may be why the runs part there
};

struct Comparison {
  enum class Verdict {
    equal,
    explained,  // a setting that bears on it differs, or the data do
    allowed,    // the contract lets them differ
    violation,  // nothing does: they should be equal
    unknown,    // no step is intact in both
  };
  Verdict verdict = Verdict::unknown;
  int64_t common = 0, first = 0, last = 0;  // steps that both have, their first and last
  int64_t states = 0;                       // after how many of them both know the state
  int64_t length_a = 0, length_b = 0;       // the last step of each
  std::optional<Divergence> divergence;
  std::optional<CheckpointDifference> checkpoint;
  std::vector<KeyDifference> settings;     // that decide bits and differ
  std::vector<std::string> allows;         // why the contract allows a difference
  std::vector<KeyDifference> environment;  // what else differs: with what the runs were made
  std::vector<Damage> damage_a, damage_b;

  bool damaged() const;  // more than the ends of files is missing: steps in between could not be compared
};

const char* name_of(Comparison::Verdict verdict);

Comparison compare(const RunRecord& a, const RunRecord& b);

// Why two runs with run.numerics = "fast" may have other bits: they were made on other kinds of GPUs. "" if they were
// not.
std::string other_kinds(const RunRecord& a, const RunRecord& b);

// 0: equal; 1: not; 3: nothing differs, but damage hides some steps, or all. A difference that is explained or allowed
// has 1 as well: the runs are not the same.
int exit_code_of(const Comparison& comparison);
nlohmann::ordered_json to_json(const Comparison& comparison);
std::string to_text(const Comparison& comparison);  // for people, the verdict first

// Environments of two runs, or of workers of them, key by key ("libraries.zmq"); `all`: also those that are equal.
std::vector<KeyDifference> environment_differences(const RunRecord& a, const RunRecord& b, bool all = false);

}  // namespace elinvar
