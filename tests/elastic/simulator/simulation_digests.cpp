// The simulator: what the members of a model replica tell each other about a rank gradient that they have computed
// together: the digests of its tensors, if an audit compares it or the ledger names it, and data that one of them
// attaches to its facts.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "elastic/audit/audit.h"
#include "tensor/digest_tree.h"
#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

// As Session::Impl::share_digests().
void Simulation::share_digests(Process& p, int vrank, const RankGradient& gradient) {
  const int64_t step = p.together->step;
  const bool is_named = named(step, vrank), compared = p.member->audit().compares(step, vrank);
  if (!(is_named || compared) || !p.member->stage_exchange().going()) return;
  std::vector<Digest> digests;
  std::string bytes;
  for (const std::vector<Tensor>* tensors : {&gradient.gradients, &gradient.batch_statistics})
    for (const Tensor& tensor : *tensors) {
      digests.push_back(tensor.defined() ? digest_tree({&tensor, 1})[0].digest : Digest{});
      if (tensor.defined()) bytes.append(reinterpret_cast<const char*>(&digests.back()), sizeof(Digest));
    }
  p.member->stage_exchange().send(messages::GradientDigests{.vrank = vrank,
                                                            .digests = blob_of(std::move(bytes)),
                                                            .loss_sum = gradient.facts.loss_sum,
                                                            .correct = gradient.facts.correct});
  p.together->undigested.push_back({vrank, is_named, compared, gradient.facts, std::move(digests)});
}

// Completes the rank gradients whose digests the others have sent. Returns whether some are missing.
bool Simulation::take_digests(Process& p) {
  using Awaits = Process::Together::Awaits;
  Process::Together& t = *p.together;
  const ModelReplica& replica = p.member->replica();
  const Generation& g = *p.member->position().generation;
  for (; !t.undigested.empty(); t.undigested.erase(t.undigested.begin())) {
    Process::Together::Undigested& each = t.undigested.front();
    const auto others = p.member->stage_exchange().take_digests(each.vrank, each.facts.samples > 0);
    t.awaits = others ? Awaits::nothing : Awaits::digests;
    if (!others) return true;
    for (const auto& [other, told] : *others) {
      const ReplicaPlace& place = g.members.at(static_cast<size_t>(other)).place;
      const std::byte* next = told.digests.data;
      for (size_t tensor = 0; tensor < each.tensors.size(); ++tensor) {
        if (!has(place, static_cast<int>(tensor))) continue;
        if (!has(t.place, static_cast<int>(tensor))) std::memcpy(&each.tensors[tensor], next, sizeof(Digest));
        next += sizeof(Digest);
      }
      if (other != replica.reporter()) continue;
      each.facts.loss_sum = told.loss_sum;
      each.facts.correct = told.correct;
    }
    RankGradient whole{.facts = each.facts};
    if (!each.tensors.empty()) whole.facts.gradient = digest_in_order(each.tensors).digest;
    const RankGradient expected =
        in_tensors(make_gradient(state_after(p, t.step), t.step, each.vrank, s_.vranks, t.scaling_state));
    const Digest digest = digest_of(whole);
    if (!t.last && digest != digest_of(expected) && !is_damaged(p))
      violate("worker {} comes to another digest of virtual rank {}", p.peer, each.vrank);
    if (each.named) each.facts.gradient = whole.facts.gradient;
    ++result_.digested;
    p.member->gradients().complete(t.step, each.vrank, each.facts,
                                   each.compared ? std::optional(digest) : std::nullopt);
  }
  return false;
}

// Every third step a number for each virtual rank is attached to its facts, as the scores of a validation are.
JsonValue Simulation::attached(uint64_t state, int64_t step, int vrank) const {
  if (!parts_ || step % 3 != 0) return {};
  return nlohmann::json(mix(state ^ static_cast<uint64_t>(step * 1000 + vrank)) >> 16);
}

// The facts in a trailer have what was attached and named, and the parts of a replica's rank gradients are complete.
void Simulation::check_facts(const Process& p, int64_t step, const Reduced& reduced) {
  if (result_.flips > 0) return;
  const bool last = p.member->position().known_steps() == step;
  for (int v = 0; v < s_.vranks; ++v) {
    const RankFacts& facts = reduced.facts.at(static_cast<size_t>(v));
    if (*facts.attached != *attached(p.state, step, v))
      violate("of virtual rank {} in step {}, {} is attached", v, step, facts.attached->dump());
    result_.attached += step % 3 == 0;
    const RankGradient expected =
        last ? RankGradient{} : in_tensors(make_gradient(p.state, step, v, s_.vranks, reduced.scaling_state));
    if (named(step, v) && !expected.gradients.empty() &&
        facts.gradient != digest_in_order(expected.gradients, expected.batch_statistics).digest)
      violate("the facts of virtual rank {} in step {} have another digest", v, step);
    const auto parts = computed_parts_.find({reduced.generation, step, v});
    const size_t all = segments_.homes.empty() ? 4 : segments_.homes.size();
    if (parts != computed_parts_.end() && parts->second.size() != all * static_cast<size_t>(virtual_shards()))
      violate("{} parts of virtual rank {} in step {} were computed", parts->second.size(), v, step);
  }
}

}  // namespace elinvar
