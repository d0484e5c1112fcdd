#include "tools/pool/plan/allocation.h"

#include <fmt/format.h>

namespace elinvar::pool {

int workers(const Allocation& allocation) {
  int sum = 0;
  for (const auto& [kind, n] : allocation) sum += n;
  return sum;
}

int count_of(const Allocation& allocation, const std::string& kind) {
  const auto found = allocation.find(kind);
  return found == allocation.end() ? 0 : found->second;
}

std::string text_of(const Allocation& allocation) {
  std::string text;
  for (const auto& [kind, n] : allocation) text += fmt::format("{}{} {}", text.empty() ? "" : " + ", n, kind);
  return text.empty() ? "nothing" : text;
}

}  // namespace elinvar::pool
