#pragma once
// The groups of GPUs that a member is in, or asks for (PROTOCOL.md, "Groups of GPUs"): one for each generation that is
// to have one, newly formed, or made from that of the generation before. The session carries out the requests beside
// all else (elastic/session/group_former.h) and answers each by named(), formed(), not_formed() or not_shrunk().
//
// Groups of generations below MemberPosition::promised are over, but for spare().
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/gpu_group.h"
#include "elastic/protocol/member_outbox.h"

namespace elinvar {

class MemberGroups {
 public:
  // `possible`: this worker is a GPU that can be in a group.
  MemberGroups(bool possible, const MemberPosition& position, MemberOutbox& outbox);

  // --- The member's.
  void propose(const Generation& generation);  // a later generation is known
  // The member's present generation has begun after `before`; `planned`: not after a fence.
  void enter(const Generation& before, bool planned);
  void fence();
  void receive(const Message& message, const messages::GroupName& name);
  void receive(const Message& message, const messages::GroupAgain&);
  // A reduction is complete, whose trailer says that all members are in the group of this name.
  void reduced(int64_t agreed_name, bool in_group);
  // Whether all members agreed to add up this generation's steps in its group, which is then current().
  bool agreed() const;
  const std::shared_ptr<GpuGroup>& current() const { return groups_.at(position_.number()); }
  int64_t name() const;  // of the group that has formed for this generation; 0: none has
  void repeat_trouble();
  void stalled(const std::string& reason);  // the group comes no further with a step

  // --- The session's.
  std::vector<GroupRequest> take_requests();
  // The generation whose group is kept after a fence, since the next one may be made from it; 0: none.
  int64_t spare() const;
  void named(int64_t generation, const NcclId& id);
  void formed(int64_t generation, std::shared_ptr<GpuGroup> group);
  void not_formed(int64_t generation, const std::string& reason);
  void not_shrunk(int64_t generation);

 private:
  int64_t name_of(int64_t generation) const { return 2 * generation + (anew_ == generation); }
  void ask(const Generation& generation);
  void inherit(const Generation& before, bool planned);
  void form_anew();
  void called_anew();
  void drop();

  bool possible_;
  const MemberPosition& position_;
  MemberOutbox& outbox_;
  std::map<int64_t, std::shared_ptr<GpuGroup>> groups_;  // that have formed, by generation
  std::map<int64_t, std::pair<PeerId, NcclId>> ids_;     // by generation: who named the group, and how
  std::set<int64_t> asked_;                              // generations whose group was asked for
  int64_t anew_ = 0;                                     // the generation whose group could not be made from another
  std::string made_ = "new";                             // how the group of this generation was made
  int64_t agreed_ = 0;                                   // the name of the group that all members are in
  int64_t told_ = 0;                                     // the generation whose group the coordinator knows to be used
  std::optional<std::string> trouble_;                   // repeated until another generation begins
  std::vector<GroupRequest> requests_;
};

}  // namespace elinvar
