#pragma once
// The groups of GPUs that a member is in, or requests (PROTOCOL.md, "Groups of GPUs"): one for each generation that is
// to have a group, newly formed or made from the previous generation's group. The session carries out the requests in
// parallel (elastic/session/group_former.h) and answers each by named(), formed(), not_formed() or not_shrunk().
//
// Groups of generations below MemberPosition::promised are over, except for spare().
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
  // `possible`: this worker has a GPU that can be in a group.
  MemberGroups(bool possible, const MemberPosition& position, MemberOutbox& outbox);

  // --- Called by the member.
  void propose(const Generation& generation);  // a later generation is known
  // The member's current generation has begun after `before`; `planned`: not after a fence.
  void enter(const Generation& before, bool planned);
  void fence();
  void receive(const Message& message, const messages::GroupName& name);
  void receive(const Message& message, const messages::GroupAgain&);
  // A reduction is complete, and its trailer says that all members are in the group of this name. `used`: the step was
  // made with the group that was agreed before.
  void reduced(int64_t agreed_name, bool used);
  // Returns the group of this generation if all members agreed to make its steps with it; else null.
  std::shared_ptr<GpuGroup> agreed() const;
  int64_t name() const;  // the name of the group that has formed for this generation; 0: none
  void repeat_trouble();
  void stalled(const std::string& reason);  // the group makes no progress in a step

  // --- Called by the session.
  std::vector<GroupRequest> take_requests();
  // Returns the generation whose group is kept after a fence, because the next one may be made from it; 0: none.
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
  std::map<int64_t, std::shared_ptr<GpuGroup>> groups_;  // the groups that have formed, by generation
  std::map<int64_t, std::pair<PeerId, NcclId>> ids_;     // by generation: the peer that named the group, and the name
  std::set<int64_t> asked_;                              // generations whose group was requested
  int64_t anew_ = 0;                                     // the generation whose group could not be made from another
  std::string made_ = "new";                             // how this generation's group was made
  int64_t agreed_ = 0;                                   // the name of the group that all members are in
  int64_t told_ = 0;                    // the generation whose group the coordinator knows to be in use
  std::optional<std::string> trouble_;  // repeated until another generation begins
  std::vector<GroupRequest> requests_;
};

}  // namespace elinvar
