#pragma once
// Groups of GPUs: their names and their outcomes (PROTOCOL.md, "Groups of GPUs").
#include <string>

#include "comm/nccl.h"
#include "elastic/protocol/message_kind.h"
#include "tensor/fields.h"

namespace elinvar::messages {

struct GroupName {
  static constexpr Kind kKind{"group", kToMember, "the first member names the group of a generation"};
  NcclId id = {};

  ELINVAR_FIELDS(id)
};

struct GroupAgain {
  static constexpr Kind kKind{"group_again", kToMember, "it cannot make its group from the one before"};
};

struct GroupUsed {
  static constexpr Kind kKind{"group_used", kToCoordinator, "a step was made with the group of this generation"};
  std::string made = {};  // "new", "kept", "shrunk"

  ELINVAR_FIELDS(made)
};

struct GroupMissing {
  static constexpr Kind kKind{"group_missing", kToCoordinator, "the group of generation `of` has not formed here"};
  int64_t of = 0;
  std::string reason = {};

  ELINVAR_FIELDS(of, reason)
};

struct GroupFailed {
  static constexpr Kind kKind{"group_failed", kToCoordinator, "the group failed in the middle of a step"};
  std::string reason = {};

  ELINVAR_FIELDS(reason)
};

}  // namespace elinvar::messages
