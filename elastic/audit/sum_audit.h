#pragma once
// The audit of one bucket's sum in one reduction (elastic/audit/audit.h). Checkers receive the owner's inputs and add
// them up as well. No member continues before it has the speakers' results (messages Check and Word of
// elastic/protocol/reduction_messages.h).
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/reduction_tree.h"
#include "elastic/audit/audit.h"

namespace elinvar {

class SumAudit {
 public:
  struct Roles {
    int bucket = 0;
    int owner = 0;
    std::vector<int> checkers;
    std::vector<int> speakers;  // members that announce their results
  };
  // In a trial every member except the owner checks, and all members speak.
  static Roles roles_of(const AuditRoles& audit, bool trial, int members);

  // `said` holds the claims that member `me` made about this sum in earlier generations.
  SumAudit(Roles roles, int me, std::vector<SumClaim> said);

  const Roles& roles() const { return roles_; }
  bool checks() const;                   // whether this member checks the sum
  bool added() const { return added_; }  // whether this member has added the sum up
  void add(const SumClaim& claim);       // records this member's result; send said() to all members if speaks()
  bool speaks() const;
  // Records the digest of the sum as received from its owner.
  void receive(const Digest& sum) { received_ = sum; }
  const std::optional<Digest>& received() const { return received_; }
  // Records a member's claims. Returns "" or what is wrong with them.
  std::string hear(int member, std::vector<SumClaim> claims);
  bool complete() const { return received_ && missing().empty(); }
  std::string missing() const;  // the speakers whose claims are missing, for people; "": none
  const std::vector<SumClaim>& said() const { return said_; }
  // The speakers' claims, by member.
  const std::map<int, std::vector<SumClaim>>& heard() const { return heard_; }

 private:
  Roles roles_;
  int me_;
  bool added_ = false;
  std::optional<Digest> received_;
  std::vector<SumClaim> said_;
  std::map<int, std::vector<SumClaim>> heard_;
};

Digest digest_of(const std::vector<Subtree>& roots, int64_t count);  // digest of the inputs, ascending
Digest digest_of(const std::vector<Tensor>& slices);                 // digest of the sum

}  // namespace elinvar
