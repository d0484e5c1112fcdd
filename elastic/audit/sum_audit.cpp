#include "elastic/audit/sum_audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "tensor/state.h"

namespace elinvar {
namespace {

bool has(const std::vector<int>& members, int member) {
  return std::find(members.begin(), members.end(), member) != members.end();
}

}  // namespace

SumAudit::Roles SumAudit::roles_of(const AuditRoles& audit, bool trial, int members) {
  Roles roles{.bucket = audit.bucket, .owner = audit.adder, .checkers = {audit.checker}, .speakers = {audit.checker}};
  if (!trial) return roles;
  roles.checkers.clear();
  roles.speakers.clear();
  for (int m = 0; m < members; ++m) {
    roles.speakers.push_back(m);
    if (m != audit.adder) roles.checkers.push_back(m);
  }
  return roles;
}

SumAudit::SumAudit(Roles roles, int me, std::vector<SumClaim> said)
    : roles_(std::move(roles)), me_(me), said_(std::move(said)) {}

bool SumAudit::checks() const { return has(roles_.checkers, me_); }
bool SumAudit::speaks() const { return has(roles_.speakers, me_); }

void SumAudit::add(const SumClaim& claim) {
  added_ = true;
  said_.push_back(claim);
  if (speaks()) heard_[me_] = said_;
}

std::string SumAudit::hear(int member, std::vector<SumClaim> claims) {
  if (!has(roles_.speakers, member)) return "a word that is not expected";
  if (claims.empty()) return "a word that says nothing";
  heard_[member] = std::move(claims);
  return "";
}

std::string SumAudit::missing() const {
  for (const int member : roles_.speakers)
    if (!heard_.contains(member)) return fmt::format("member {}'s word on bucket {}", member, roles_.bucket);
  return "";
}

Digest digest_of(const std::vector<Subtree>& roots, int64_t count) {
  Hasher hasher;
  hasher.add_integer(count);
  for (const Subtree& root : roots) {
    hasher.add_integer(root.begin);
    hasher.add_integer(root.end);
    hasher.add(digest_of(root.values));
  }
  return hasher.digest();
}

Digest digest_of(const std::vector<Tensor>& slices) { return digest_in_order(slices).digest; }

}  // namespace elinvar
