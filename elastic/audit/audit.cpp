#include "elastic/audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "tensor/philox.h"
#include "tensor/state.h"

namespace elinvar {
namespace {

enum class Draw : uint32_t { vrank, bucket, auditor, checker };

uint64_t draw(const AuditOptions& options, int64_t step, Draw what, int which = 0) {
  const Random4 r =
      philox(options.seed ^ key_of("audit"), static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
             static_cast<uint32_t>(what), static_cast<uint32_t>(which));
  return static_cast<uint64_t>(r.v[0]) << 32 | r.v[1];
}

int below(uint64_t drawn, int n) { return static_cast<int>(drawn % static_cast<uint64_t>(n)); }

// Returns whether the member computes rank gradients together with others.
bool has_fellows(const Generation& g, int member) {
  const ReplicaPlace& place = g.members[static_cast<size_t>(member)].place;
  return g.shards > 0 && (place.shards.size() < g.shards || !place.segments.empty());
}

// Draws lots that belong to a worker and not to its index, so a death changes no other worker's lot. An auditor is
// preferably of another model replica than `other`, the first of those that compute the rank gradient, and then idle.
// If there is no other replica, all of its members are auditors in turn, so that none of them always checks itself.
// Else never chooses `other`.
int choose(const AuditOptions& options, const Generation& g, int64_t step, Draw what, int other) {
  const auto replica_of = [&](int m) { return g.members[static_cast<size_t>(m)].place.replica; };
  int chosen = -1;
  std::tuple<bool, bool, uint64_t> best{};
  for (int m = 0; m < static_cast<int>(g.members.size()); ++m) {
    const bool audits = what == Draw::auditor;
    if (m == other && !(audits && has_fellows(g, other))) continue;
    const bool apart = audits && g.shards > 0 && replica_of(m) != replica_of(other);
    const bool idle = audits && g.share(m, step).empty();
    const std::tuple lot{apart, idle, draw(options, step, what, g.members[static_cast<size_t>(m)].id)};
    if (chosen < 0 || lot > best) {
      chosen = m;
      best = lot;
    }
  }
  return chosen;
}

std::string brief(const Digest& digest) { return digest.hex().substr(0, 8); }

// A question that every witness may have answered.
struct Question {
  std::string what;
  std::vector<std::pair<int, Digest>> answers;

  // Example: "rank gradient 3 of update 9: worker 2 has 1a2b3c4d, workers 1 and 3 have 5e6f7081".
  std::string text() const {
    std::map<std::string, std::vector<int>> positions;
    for (const auto& [worker, answer] : answers) positions[brief(answer)].push_back(worker);
    std::vector<std::string> texts;
    for (const auto& [answer, workers] : positions)
      texts.push_back(fmt::format("{} {} {}", workers.size() > 1 ? "workers" : "worker", fmt::join(workers, " and "),
                                  (workers.size() > 1 ? "have " : "has ") + answer));
    return fmt::format("{}: {}", what, fmt::join(texts, ", "));
  }
  bool agreed() const {
    return std::all_of(answers.begin(), answers.end(), [&](const auto& a) { return a.second == answers[0].second; });
  }
  // Returns the workers whose answer differs from the one that more than half gave; empty if there is no such majority.
  std::vector<int> minority() const {
    for (const auto& [worker, answer] : answers) {
      std::vector<int> others;
      for (const auto& [w, a] : answers)
        if (a != answer) others.push_back(w);
      if (others.size() * 2 < answers.size()) return others;
    }
    return {};
  }
};

struct Questions {
  Question states, leaves, inputs, sums;
};

Questions questions_of(const Evidence& e) {
  const auto question = [&](const std::string& what) {
    return Question{fmt::format("{} update {}", what, e.step + 1), {}};
  };
  Questions q{question("the state before"), question(fmt::format("rank gradient {} of", e.vrank)),
              question(fmt::format("what is added up in bucket {} of", e.bucket)),
              question(fmt::format("the sum of bucket {} of", e.bucket))};
  for (const auto& [worker, claims] : e.witnesses) {
    if (!claims.states.empty()) q.states.answers.emplace_back(worker, claims.states.back());
    if (!claims.leaves.empty()) q.leaves.answers.emplace_back(worker, claims.leaves.back());
    if (claims.together && e.stage == Evidence::Stage::audit) q.leaves.answers.emplace_back(worker, *claims.together);
    if (claims.sums.empty()) continue;
    q.inputs.answers.emplace_back(worker, claims.sums.back().inputs);
    q.sums.answers.emplace_back(worker, claims.sums.back().sum);
  }
  return q;
}

// Returns the first claim of a worker that contradicts another of its own claims, or "".
std::string contradiction_in(const AuditClaims& claims, const Evidence& e) {
  const auto text = [](const std::string& what, const Digest& a, const Digest& b) {
    return fmt::format("{} was {}, and then {}", what, brief(a), brief(b));
  };
  for (const Digest& d : claims.states)
    if (d != claims.states[0]) return text(fmt::format("the state before update {}", e.step + 1), claims.states[0], d);
  for (const Digest& d : claims.leaves)
    if (d != claims.leaves[0])
      return text(fmt::format("rank gradient {} of update {}", e.vrank, e.step + 1), claims.leaves[0], d);
  for (const SumClaim& a : claims.sums)
    for (const SumClaim& b : claims.sums)
      if (a.inputs == b.inputs && a.sum != b.sum)
        return text(fmt::format("the same sum of bucket {} of update {}", e.bucket, e.step + 1), a.sum, b.sum);
  return "";
}

// Returns whether the replays agree with each other but with no state that any worker had: wrong rank gradients went
// into all of the states.
bool damaged_before(const Evidence& e) {
  if (e.stage != Evidence::Stage::replay) return false;
  for (const auto& [worker, claims] : e.witnesses) {
    if (claims.states.empty() || claims.states.front() == claims.states.back()) return false;
    if (claims.states.back() != e.witnesses[0].claims.states.back()) return false;
  }
  return true;
}

}  // namespace

bool audited(const AuditOptions& options, int64_t step) { return due(step + 1, options.every); }

int audited_vrank(const AuditOptions& options, int64_t step, int vranks) {
  return below(draw(options, step, Draw::vrank), vranks);
}

int audited_bucket(const AuditOptions& options, int64_t step, int buckets) {
  return below(draw(options, step, Draw::bucket), buckets);
}

AuditRoles audit_roles(const AuditOptions& options, const Generation& g, int64_t step, int vranks,
                       std::span<const int> owners) {
  const int members = static_cast<int>(g.members.size());
  AuditRoles roles{.vrank = audited_vrank(options, step, vranks)};
  while (roles.owner < members && !contains(g.share(roles.owner, step), roles.vrank)) ++roles.owner;
  if (members < 2) {
    roles.auditor = roles.owner;
    return roles;
  }
  roles.auditor = choose(options, g, step, Draw::auditor, roles.owner);
  if (owners.empty()) return roles;
  roles.bucket = audited_bucket(options, step, static_cast<int>(owners.size()));
  roles.adder = owners[static_cast<size_t>(roles.bucket)];
  roles.checker = choose(options, g, step, Draw::checker, roles.adder);
  return roles;
}

Digest digest_of(const RankGradient& gradient) {
  Hasher hasher;
  const RankFacts& f = gradient.facts;
  hasher.add_integer(std::bit_cast<int64_t>(f.loss_sum));
  for (const int64_t number : {f.count, f.correct, f.samples}) hasher.add_integer(number);
  hasher.add(f.batch);
  hasher.add(f.gradient ? *f.gradient : digest_in_order(gradient.gradients, gradient.batch_statistics).digest);
  return hasher.digest();
}

Verdict judge(const Evidence& e, bool independent) {
  Verdict verdict;
  if (damaged_before(e)) {
    verdict.what = Verdict::What::undecided;
    for (const Witness& witness : e.witnesses) verdict.workers.push_back(witness.worker);
    verdict.reason = fmt::format(
        "from the checkpoint everybody comes to another state before update {} than it had: "
        "something was damaged before, and is in the updates since",
        e.step + 1);
    return verdict;
  }
  std::vector<std::string> proofs;
  for (const auto& [worker, claims] : e.witnesses) {
    const std::string contradiction = contradiction_in(claims, e);
    if (contradiction.empty()) continue;
    verdict.workers.push_back(worker);
    proofs.push_back(fmt::format("worker {} contradicts itself: {}", worker, contradiction));
  }
  if (!proofs.empty()) {
    verdict.what = Verdict::What::guilty;
    verdict.reason = fmt::format("{}", fmt::join(proofs, "; "));
    return verdict;
  }
  const Questions q = questions_of(e);
  const Question* const all[] = {&q.states, &q.leaves, &q.inputs, &q.sums};
  const auto* const differs =
      std::find_if(std::begin(all), std::end(all), [](const Question* question) { return !question->agreed(); });
  const bool received_otherwise = e.stage == Evidence::Stage::audit && e.received && !q.sums.answers.empty() &&
                                  q.sums.answers[0].second != *e.received;
  if (differs != std::end(all)) verdict.reason = (*differs)->text();
  else if (received_otherwise) verdict.reason = fmt::format("{}; received was {}", q.sums.text(), brief(*e.received));
  else return verdict;
  verdict.what = Verdict::What::try_all;
  // The worker that damaged what others reduce cannot be identified here: gradients are computed and sent again.
  if (e.stage == Evidence::Stage::audit || *differs == &q.inputs) return verdict;
  if (independent || *differs != &q.states) verdict.workers = (*differs)->minority();
  if (!verdict.workers.empty()) {
    verdict.what = Verdict::What::guilty;
    return verdict;
  }
  verdict.what = e.stage == Evidence::Stage::trial ? Verdict::What::replay : Verdict::What::undecided;
  for (const auto& [worker, answer] : (*differs)->answers) verdict.workers.push_back(worker);
  return verdict;
}

bool states_differ(const Evidence& e) { return !questions_of(e).states.agreed(); }

const char* name_of(Verdict::What what) {
  constexpr const char* kNames[] = {"agreed", "all compute it again",     "guilty",
                                    "replay", "all restore a checkpoint", "undecided"};
  return kNames[static_cast<int>(what)];
}

}  // namespace elinvar
