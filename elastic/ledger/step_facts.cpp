#include "elastic/ledger/step_facts.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "elastic/ledger/digest_file.h"
#include "tensor/digest_tree.h"

namespace elinvar {
namespace {

constexpr size_t kMostOfTensors = size_t{256} << 10;  // bytes of digests of single tensors in the trailer of a step

// What digests.jsonl tells of a step, `leaves` being those that the ledger names.
DigestLine digests_of_step(const Reduced& reduced, int64_t step, const nlohmann::json& leaves, std::string gradient) {
  DigestLine line{.step = step, .gradient = std::move(gradient)};
  for (const LeafFacts& leaf : reduced.facts) {
    line.batches += leaf.batch_tensors.empty() ? std::string(2 * kShortDigest, '0') : leaf.batch_tensors;
    line.losses += fmt::format("{:016x}", std::bit_cast<uint64_t>(leaf.loss_sum));
  }
  for (const auto& [vrank, digest] : leaves.items())
    if (const std::string& tensors = reduced.facts[std::stoul(vrank)].tensors; !tensors.empty())
      line.leaves.emplace(std::stoi(vrank), tensors);
  return line;
}

}  // namespace

void digest_leaf(Leaf& leaf, int64_t step, const LedgerOptions& ledger, int vranks) {
  TensorsDigest digested = digest_in_order(leaf.gradients, leaf.terms);
  leaf.facts.gradient = digested.digest;
  const size_t leaves = ledger.leaves == LedgerOptions::Leaves::all ? static_cast<size_t>(vranks) : 1;
  if (due(step + 1, ledger.tensors_every) && digested.tensors.size() * leaves <= kMostOfTensors)
    leaf.facts.tensors = std::move(digested.tensors);
}

nlohmann::json state_facts(const Reduced& r) {
  if (!r.state) return nlohmann::json::object();
  return {{"state", r.state->hex()}, {"state_digests", {r.state_digests.tensors, r.state_digests.chunks}}};
}

UpdateFacts update_facts(const Reduced& r, TensorsDigest gradient, int64_t step, double lr, const LedgerOptions& ledger,
                         int vranks) {
  nlohmann::json facts = {{"batch", r.batch.hex()},
                          {"loss", std::bit_cast<uint64_t>(r.loss)},
                          {"leaves", nlohmann::json::object()},
                          {"gradient", gradient.digest.hex()},
                          {"lr", std::bit_cast<uint64_t>(lr)},
                          {"count", r.count},
                          {"correct", r.correct},
                          {"samples", r.samples},
                          {"seconds", r.seconds}};
  for (size_t v = 0; v < r.facts.size(); ++v)
    if (r.facts[v].gradient && names_leaf(ledger, step, static_cast<int>(v), vranks))
      facts["leaves"][std::to_string(v)] = r.facts[v].gradient->hex();
  std::string digests;
  if (due(step + 1, ledger.tensors_every))
    digests = digests_of_step(r, step + 1, facts["leaves"], std::move(gradient.tensors)).text();
  return {std::move(facts), std::move(digests)};
}

}  // namespace elinvar
