#include "tests/ptx/mutant.h"

#include <cstddef>
#include <cstdlib>
#include <sstream>
#include <string>

namespace elinvar::ptx {
namespace {

struct Mutant {
  std::string file, function, text;
  size_t number = 0;
};

Mutant mutant_of_this_process() {
  Mutant mutant;
  if (const char* const variable = std::getenv("ELINVAR_PTX_MUTANT")) {
    std::istringstream words(variable);
    words >> mutant.file >> mutant.function >> mutant.number;
    std::getline(words, mutant.text);
  }
  return mutant;
}

}  // namespace

void apply_mutant(std::string_view file, std::string_view function, std::vector<Statement>& all) {
  static const Mutant mutant = mutant_of_this_process();
  if (function != mutant.function || file != mutant.file) return;
  size_t number = 0;
  for (auto at = all.begin(); at != all.end(); ++at) {
    if (at->is_label() || at->is_directive() || number++ != mutant.number) continue;
    std::vector<Statement> changed =
        statements({.name = mutant.function, .entry = false, .line = at->line, .head = {}, .body = mutant.text});
    all.insert(all.erase(at), changed.begin(), changed.end());
    return;
  }
}

}  // namespace elinvar::ptx
