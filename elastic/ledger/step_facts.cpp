#include "elastic/ledger/step_facts.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "elastic/ledger/digest_file.h"
#include "tensor/digest_tree.h"

namespace elinvar {
namespace {

constexpr size_t kMostOfTensors = size_t{256} << 10;  // bytes of digests of single tensors in the trailer of a step

// Returns the line of digests.jsonl for a step. `leaves` are the rank gradients that the ledger names.
DigestLine digests_of_step(const Reduced& reduced, int64_t step, const std::map<int, Digest>& leaves,
                           std::string gradient) {
  DigestLine line{.step = step, .gradient = std::move(gradient)};
  for (const RankFacts& rank : reduced.facts) {
    line.batches += rank.batch_tensors.empty() ? std::string(2 * kShortDigest, '0') : rank.batch_tensors;
    line.losses += fmt::format("{:016x}", std::bit_cast<uint64_t>(rank.loss_sum));
  }
  for (const auto& [vrank, digest] : leaves)
    if (const std::string& tensors = reduced.facts[static_cast<size_t>(vrank)].tensors; !tensors.empty())
      line.leaves.emplace(vrank, tensors);
  return line;
}

}  // namespace

void digest_rank_gradient(RankGradient& gradient, int64_t step, const LedgerOptions& ledger, int vranks) {
  digest_rank_gradient(gradient.facts, digest_in_order(gradient.gradients, gradient.batch_statistics), step, ledger,
                       vranks);
}

void digest_rank_gradient(RankFacts& facts, TensorsDigest digested, int64_t step, const LedgerOptions& ledger,
                          int vranks) {
  facts.gradient = digested.digest;
  const size_t leaves = ledger.leaves == LedgerOptions::Leaves::all ? static_cast<size_t>(vranks) : 1;
  if (due(step + 1, ledger.tensors_every) && digested.tensors.size() * leaves <= kMostOfTensors)
    facts.tensors = std::move(digested.tensors);
}

StepFacts facts_of(const Reduced& r, std::optional<TensorsDigest> gradient, int64_t step, const LedgerOptions& ledger,
                   int vranks) {
  StepFacts facts{.step = step, .state = r.state, .state_digests = r.state_digests};
  if (!gradient) return facts;
  UpdateFacts& update = facts.update.emplace(UpdateFacts{.batch = r.batch,
                                                         .loss = r.loss,
                                                         .gradient = gradient->digest,
                                                         .count = r.count,
                                                         .correct = r.correct,
                                                         .samples = r.samples,
                                                         .seconds = r.seconds,
                                                         .generation = r.generation,
                                                         .batch_size = r.scaling_state.batch});
  for (size_t v = 0; v < r.facts.size(); ++v)
    if (r.facts[v].gradient && names_rank_gradient(ledger, step, static_cast<int>(v), vranks))
      update.leaves.emplace(static_cast<int>(v), *r.facts[v].gradient);
  if (due(step + 1, ledger.tensors_every))
    facts.digests = digests_of_step(r, step + 1, update.leaves, std::move(gradient->tensors)).text();
  return facts;
}

}  // namespace elinvar
