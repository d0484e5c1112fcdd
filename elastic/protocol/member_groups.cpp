#include "elastic/protocol/member_groups.h"

#include <utility>

namespace elinvar {

MemberGroups::MemberGroups(bool possible, const MemberPosition& position, MemberOutbox& outbox)
    : possible_(possible), position_(position), outbox_(outbox) {}

// Requests the group once the generation and the name of its group are known. The first member makes the name.
void MemberGroups::ask(const Generation& generation) {
  const int me = generation.index_of(position_.self), members = static_cast<int>(generation.members.size());
  if (!possible_ || !generation.group || me < 0 || members < 2 || asked_.contains(generation.number)) return;
  const bool called = me > 0 ? ids_.contains(generation.number) : anew_ == generation.number;
  if (generation.group_from && !called) return;  // made from another group once this generation begins
  GroupRequest request{.generation = generation.number, .members = members, .me = me};
  if (me > 0) {
    const auto id = ids_.find(generation.number);
    if (id == ids_.end() || id->second.first != generation.members[0].peer) return;
    request.id = id->second.second;
  }
  asked_.insert(generation.number);
  requests_.push_back(request);
}

void MemberGroups::propose(const Generation& generation) { ask(generation); }

void MemberGroups::enter(const Generation& before, bool planned) {
  trouble_.reset();
  inherit(before, planned);
  drop();
  ask(*position_.generation);
}

// Requests the group that is made from the previous generation's group. Nothing is in transfer in that group, because
// this member has ended its last step in it, or a fence has. If this is impossible, the first member asks all members
// to form a new group.
void MemberGroups::inherit(const Generation& before, bool planned) {
  const Generation& now = *position_.generation;
  made_ = "new";
  if (!possible_ || !now.group || !now.group_from || position_.index < 0) return;
  if (ids_.contains(now.number)) return called_anew();
  const auto group = groups_.find(*now.group_from);
  if (before.number != *now.group_from || group == groups_.end()) return not_shrunk(now.number);
  GroupRequest request{
      .generation = now.number, .members = position_.members(), .me = position_.index, .from = now.group_from};
  for (size_t m = 0; m < before.members.size(); ++m)
    if (now.index_of(before.members[m].peer) < 0) request.gone.push_back(static_cast<int>(m));
  made_ = request.gone.empty() ? "kept" : "shrunk";
  if (request.gone.empty()) {
    groups_[now.number] = group->second;
    // The last trailer told all members that continue that all of them are in the group.
    if (planned && agreed_ == name_of(before.number)) agreed_ = name_of(now.number);
  }
  asked_.insert(now.number);
  requests_.push_back(std::move(request));
}

void MemberGroups::fence() {
  trouble_.reset();
  drop();
}

// The sender is the first member of that generation, which may not be known here yet.
void MemberGroups::receive(const Message& m, const messages::GroupName& name) {
  if (!possible_ || m.generation < position_.promised) return;
  ids_[m.generation] = {m.sender, name.id};
  if (position_.generation && position_.number() == m.generation) {
    if (position_.generation->group_from) called_anew();
    ask(*position_.generation);
  }
  if (const auto found = position_.proposed.find(m.generation); found != position_.proposed.end()) ask(found->second);
}

void MemberGroups::receive(const Message& m, const messages::GroupAgain&) {
  if (m.generation == position_.number() && position_.index == 0) form_anew();
}

void MemberGroups::reduced(int64_t agreed_name, bool used) {
  if (position_.index == 0 && used && told_ != position_.number()) {
    told_ = position_.number();
    outbox_.report(messages::GroupUsed{made_});
  }
  agreed_ = agreed_name;
}

// All members decide alike: the trailer of the previous step told all of them which group each is in.
std::shared_ptr<GpuGroup> MemberGroups::agreed() const {
  const auto group = groups_.find(position_.number());
  const bool all = position_.active() && position_.members() > 1 && agreed_ == name_of(position_.number());
  return all && group != groups_.end() ? group->second : nullptr;
}

int64_t MemberGroups::name() const { return groups_.contains(position_.number()) ? name_of(position_.number()) : 0; }

void MemberGroups::repeat_trouble() {
  if (trouble_) outbox_.report(messages::GroupFailed{*trouble_});
}

void MemberGroups::stalled(const std::string& reason) {
  if (trouble_) return;
  trouble_ = reason;
  repeat_trouble();
}

std::vector<GroupRequest> MemberGroups::take_requests() { return std::exchange(requests_, {}); }

int64_t MemberGroups::spare() const {
  if (!position_.fenced() || !position_.active()) return 0;
  const auto group = groups_.find(position_.number());
  return group != groups_.end() && group->second->whole() ? position_.number() : 0;
}

void MemberGroups::named(int64_t generation, const NcclId& id) {
  const auto proposed = position_.proposed.find(generation);
  const Generation* const named = proposed != position_.proposed.end() ? &proposed->second
                                  : position_.number() == generation   ? &*position_.generation
                                                                       : nullptr;
  if (named == nullptr) return;
  for (const GenerationMember& m : named->members)
    if (m.peer != position_.self) outbox_.send(m.peer, generation, position_.completed, messages::GroupName{id});
}

void MemberGroups::formed(int64_t generation, std::shared_ptr<GpuGroup> group) {
  if (generation >= position_.promised) groups_[generation] = std::move(group);
}

void MemberGroups::not_formed(int64_t generation, const std::string& reason) {
  outbox_.report(messages::GroupMissing{.of = generation, .reason = reason});
}

void MemberGroups::not_shrunk(int64_t generation) {
  if (generation != position_.number() || !position_.active()) return;
  if (position_.index == 0) form_anew();
  else outbox_.send(position_.generation->members[0].peer, messages::GroupAgain{});
}

// The first member forms the group again, once. No member can have used the old one, because not all have it.
void MemberGroups::form_anew() {
  if (anew_ == position_.number()) return;
  called_anew();
  ask(*position_.generation);
}

// Renames this generation's group: a member that is still in the first group shares no group with the others.
void MemberGroups::called_anew() {
  anew_ = position_.number();
  made_ = "new";
  groups_.erase(anew_);
  asked_.erase(anew_);
}

void MemberGroups::drop() {
  const int64_t kept = spare();
  std::erase_if(groups_, [&](const auto& g) { return g.first < position_.promised && g.first != kept; });
  ids_.erase(ids_.begin(), ids_.lower_bound(position_.promised));
  asked_.erase(asked_.begin(), asked_.lower_bound(position_.promised));
}

}  // namespace elinvar
