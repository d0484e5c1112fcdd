#include "tests/ptx/reach.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace elinvar::ptx {

Reach::Reach() {
  if (std::getenv("ELINVAR_PTX_REACH") != nullptr) std::atexit([] { instance().write(); });
}

Reach& Reach::instance() {
  static auto* all = new Reach;
  return *all;
}

void Reach::add(std::shared_ptr<Function> kernel) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(kernels_, kernel) == kernels_.end()) kernels_.push_back(std::move(kernel));
}

// One line for each kernel and each function that it calls: its file and name, and a digit for each instruction, 1 if
// it was reached.
void Reach::write() const {
  std::vector<std::shared_ptr<const Function>> functions(kernels_.begin(), kernels_.end());
  for (const auto& kernel : kernels_)
    for (const Call& call : kernel->calls)
      if (std::ranges::find(functions, call.callee) == functions.end()) functions.push_back(call.callee);
  std::ofstream out(std::string(std::getenv("ELINVAR_PTX_REACH")) + "/" + std::to_string(getpid()) + ".reach");
  for (const auto& function : functions) {
    out << function->file << ' ' << function->name << ' ';
    for (size_t k = 0; k + 1 < function->code.size(); ++k) out << (function->code[k].reached ? '1' : '0');
    out << '\n';
  }
}

}  // namespace elinvar::ptx
