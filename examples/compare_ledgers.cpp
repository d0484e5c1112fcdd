// Reads the ledgers of two runs and says whether they are equal, or at which step they first differ and how.
//
//   compare_ledgers runs/a runs/b
//
// A ledger has a line for each step with digests of the step's inputs and results (elastic/LEDGER.md). `repro diff`
// locates a difference down to the tensor and the element.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "elinvar/elastic/run/run_record.h"

using namespace elinvar;

namespace {

void print(const RunRecord& run) {
  std::printf("%s: %zu steps", run.path().c_str(), run.lines().size());
  if (!run.lines().empty()) std::printf(", loss %.4f at the end", run.lines().rbegin()->second.loss);
  std::printf("\n");
  for (const Damage& damage : run.damage()) std::printf("  %s\n", to_string(damage).c_str());
}

// Returns 0 if the ledgers are equal, 1 if they differ.
int compare(const RunRecord& a, const RunRecord& b) {
  for (const auto& [step, line] : a.lines()) {
    const auto other = b.lines().find(step);
    if (other == b.lines().end()) continue;
    const std::vector<std::string> fields = differing_fields(line, other->second);
    if (fields.empty()) continue;
    std::printf("they part at step %ld, first in: %s\n", step, fields.front().c_str());
    return 1;
  }
  std::printf("equal in all steps that both have\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: compare_ledgers RUN_DIR RUN_DIR\n");
    return 2;
  }
  try {
    const RunRecord a(argv[1]), b(argv[2]);
    print(a);
    print(b);
    return compare(a, b);
  } catch (const std::exception& error) {  // no run, or a ledger of another version
    std::fprintf(stderr, "compare_ledgers: %s\n", error.what());
    return 3;
  }
}
