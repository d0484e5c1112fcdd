#pragma once
// The audit of one bucket's sum in one reduction (elastic/audit/audit.h): checkers get what its owner gets and add it
// up as well, and nobody goes on before it has heard what they came to (the messages Check and Word of
// elastic/protocol/reduction_messages.h).
#include <map>
#include <string>
#include <vector>

#include "comm/reduction_tree.h"
#include "elastic/audit/audit.h"

namespace elinvar {

class SumAudit {
 public:
  struct Roles {
    int bucket = 0;
    int owner = 0;
    std::vector<int> checkers;
    std::vector<int> speakers;  // who say what they came to
  };
  // In a trial everybody but the owner checks, and all speak.
  static Roles roles_of(const AuditRoles& audit, bool trial, int members);

  // `said`: what member `me` has said of this sum before, in an earlier generation.
  SumAudit(Roles roles, int me, std::vector<SumClaim> said);

  const Roles& roles() const { return roles_; }
  bool checks() const;                   // this member does
  bool added() const { return added_; }  // this member has added the sum up
  void add(const SumClaim& claim);       // what it came to; said() is to be sent to all if it speaks()
  bool speaks() const;
  // What a member has said; "" or what is wrong with that.
  std::string hear(int member, std::vector<SumClaim> claims);
  std::string missing() const;  // for people; "": all have spoken
  const std::vector<SumClaim>& said() const { return said_; }
  // What the speakers have said, by member.
  const std::map<int, std::vector<SumClaim>>& heard() const { return heard_; }

 private:
  Roles roles_;
  int me_;
  bool added_ = false;
  std::vector<SumClaim> said_;
  std::map<int, std::vector<SumClaim>> heard_;
};

Digest digest_of(const std::vector<Subtree>& roots, int64_t count);  // what is added up; ascending
Digest digest_of(const std::vector<Tensor>& slices);                 // of the sum

}  // namespace elinvar
