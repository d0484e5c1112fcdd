#include "tools/repro/ledger_fields.h"

#include <fmt/format.h>

#include <bit>

namespace elinvar {

std::vector<std::string> differing_fields(const LedgerLine& a, const LedgerLine& b) {
  std::vector<std::string> fields;
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  if (a.batch_size != b.batch_size) fields.emplace_back("batch_size");
  if (a.batch != b.batch) fields.emplace_back("batch");
  if (bits(a.loss) != bits(b.loss)) fields.emplace_back("loss");
  for (const auto& [vrank, digest] : a.leaves)
    if (const auto other = b.leaves.find(vrank); other != b.leaves.end() && other->second != digest)
      fields.push_back(fmt::format("leaf {}", vrank));
  if (a.gradient != b.gradient) fields.emplace_back("gradient");
  if (bits(a.lr) != bits(b.lr)) fields.emplace_back("lr");
  if (a.state && b.state && *a.state != *b.state) fields.emplace_back("state");
  return fields;
}

}  // namespace elinvar
