// A member: groups of GPUs (PROTOCOL.md, "Groups of GPUs").
#include "elastic/protocol/member.h"
#include "tensor/base/check.h"

namespace elinvar {

// As soon as it knows of the generation and what the group is called; the first member says that.
void Member::ask_for_group(const Generation& generation) {
  const int me = generation.index_of(options_.self), members = static_cast<int>(generation.members.size());
  if (!options_.groups || !generation.group || me < 0 || members < 2 || asked_groups_.contains(generation.number))
    return;
  const bool called = me > 0 ? group_ids_.contains(generation.number) : anew_ == generation.number;
  if (generation.group_from && !called) return;  // it comes from another, once this generation has begun
  GroupRequest request{.generation = generation.number, .members = members, .me = me};
  if (me > 0) {
    const auto id = group_ids_.find(generation.number);
    if (id == group_ids_.end() || id->second.first != generation.members[0].peer) return;
    request.id = id->second.second;
  }
  asked_groups_.insert(generation.number);
  group_requests_.push_back(request);
}

// What is to be made from the group of the generation before is asked for here: nothing is under way in it, since this
// member has ended its last step in it, or a fence. If that is not to be, the first member is told, which asks all for
// a new one.
void Member::inherit_group(const Generation& before, bool planned) {
  const Generation& now = *generation_;
  group_made_ = "new";
  if (!options_.groups || !now.group || !now.group_from || me_ < 0) return;
  if (group_ids_.contains(now.number)) return called_anew();
  const auto group = groups_.find(*now.group_from);
  if (before.number != *now.group_from || group == groups_.end()) return group_not_shrunk(now.number);
  GroupRequest request{.generation = now.number, .members = members(), .me = me_, .from = now.group_from};
  for (size_t m = 0; m < before.members.size(); ++m)
    if (now.index_of(before.members[m].peer) < 0) request.gone.push_back(static_cast<int>(m));
  group_made_ = request.gone.empty() ? "kept" : "shrunk";
  if (request.gone.empty()) {
    groups_[now.number] = group->second;
    // All who go on know by the last trailer that all of them are in it.
    if (planned && group_agreed_ == group_name(before.number)) group_agreed_ = group_name(now.number);
  }
  asked_groups_.insert(now.number);
  group_requests_.push_back(std::move(request));
}

void Member::group_not_shrunk(int64_t generation) {
  if (generation != this->generation() || !active()) return;
  if (me_ == 0) form_anew(generation);
  else send(generation_->members[0].peer, messages::GroupAgain{});
}

// By the first member, once: nobody can have used what not all have.
void Member::form_anew(int64_t generation) {
  if (anew_ == generation) return;
  called_anew();
  ask_for_group(*generation_);
}

// From now on this generation's group goes by another name: who is still in the first one is in no group with others.
void Member::called_anew() {
  anew_ = generation();
  group_made_ = "new";
  groups_.erase(anew_);
  asked_groups_.erase(anew_);
}

// By the first member of that generation, which may not be known here yet.
void Member::group_called(const Message& m, const messages::GroupName& name) {
  if (!options_.groups || m.generation < promised_) return;
  group_ids_[m.generation] = {m.sender, name.id};
  if (generation_ && generation_->number == m.generation) {
    if (generation_->group_from) called_anew();
    ask_for_group(*generation_);
  }
  if (const auto found = proposed_.find(m.generation); found != proposed_.end()) ask_for_group(found->second);
}

void Member::group_named(int64_t generation, const NcclId& id) {
  const auto proposed = proposed_.find(generation);
  const Generation* const named = proposed != proposed_.end()        ? &proposed->second
                                  : this->generation() == generation ? &*generation_
                                                                     : nullptr;
  if (named == nullptr) return;
  for (const GenerationMember& m : named->members)
    if (m.peer != options_.self)
      actions_.push_back({Action::What::send,
                          m.peer,
                          {},
                          {.generation = generation, .step = completed_, .payload = messages::GroupName{id}}});
}

void Member::group_formed(int64_t generation, std::shared_ptr<GpuGroup> group) {
  if (generation >= promised_) groups_[generation] = std::move(group);
}

void Member::group_not_formed(int64_t generation, const std::string& reason) {
  report(messages::GroupMissing{.of = generation, .reason = reason});
}

// All members decide alike: the trailer of the step before tells all of them who is in it. What is audited is added up
// where its parts can be looked at.
bool Member::reduces_in_group() const {
  return active() && members() > 1 && group_agreed_ == group_name(generation()) && groups_.contains(generation()) &&
         !audits() && !last();
}

bool Member::keeps_leaves() const {
  const bool alone = active() && members() == 1 && !audits() && !last() && !crowded_;
  return alone || reduces_in_group();
}

bool Member::let_leaves_go() {
  if (!keeps_leaves() || reduces_in_group()) return false;
  leaves_.move_to(Device{});
  return crowded_ = true;
}

void Member::group_stalled(const std::string& reason) {
  if (group_trouble_ || !exchange_) return;
  group_trouble_ = reason;
  report(messages::GroupFailed{reason});
}

int64_t Member::spare_group() const {
  const auto group = groups_.find(generation());
  return fenced() && active() && group != groups_.end() && group->second->whole() ? generation() : 0;
}

void Member::drop_groups() {
  const int64_t spare = spare_group();
  std::erase_if(groups_, [&](const auto& g) { return g.first < promised_ && g.first != spare; });
  group_ids_.erase(group_ids_.begin(), group_ids_.lower_bound(promised_));
  asked_groups_.erase(asked_groups_.begin(), asked_groups_.lower_bound(promised_));
}

std::vector<GroupRequest> Member::take_group_requests() { return std::exchange(group_requests_, {}); }

}  // namespace elinvar
