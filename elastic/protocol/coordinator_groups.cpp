// The coordinator: which generations are to be groups of GPUs, and what became of that (PROTOCOL.md, "Groups of GPUs").
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

using Json = nlohmann::json;

constexpr int kMostFailures = 3;  // of groups in the middle of a step, before there are no more

// "": they can be one. What each is it has said in its hello.
std::string Coordinator::why_no_group(const std::vector<PeerId>& peers) const {
  if (peers.size() < 2) return "a worker alone sends nothing";
  if (group_failures_ >= kMostFailures)
    return fmt::format("groups have failed {} times, at last: {}", group_failures_, group_trouble_);
  std::string version;
  std::map<std::string, int> places;
  for (const PeerId peer : peers) {
    const Worker& worker = workers_.at(peer);
    const NcclSupport& nccl = worker.about.nccl;
    if (!nccl.why_not.empty()) return fmt::format("worker {} has no NCCL: {}", worker.id, nccl.why_not);
    const std::string &has = nccl.version, &place = nccl.place;
    if (version.empty()) version = has;
    if (has != version) return fmt::format("worker {} has {}, others have {}", worker.id, has, version);
    const auto [other, alone] = places.emplace(place, worker.id);
    if (!alone) return fmt::format("workers {} and {} share {}", other->second, worker.id, place);
  }
  return "";
}

namespace {

// Whether a group may go on as that of `next`: with all of its members, or without those that are not in it.
bool goes_on(const Generation& next, size_t members, const Roster& workers) {
  if (next.members.size() == members) return true;
  return std::all_of(next.members.begin(), next.members.end(),
                     [&](const GenerationMember& m) { return workers.at(m.peer).about.nccl.shrinks; });
}

}  // namespace

// As planned, from a group that all of them are in: a step was made by it.
std::optional<int64_t> Coordinator::group_to_keep(const Generation& next) const {
  if (!next.group || !current_->group || group_used_ != current_->number) return std::nullopt;
  for (const GenerationMember& m : next.members)
    if (current_->index_of(m.peer) < 0) return std::nullopt;
  return goes_on(next, current_->members.size(), workers_) ? std::optional(current_->number) : std::nullopt;
}

// After a fence, from a group in which, as all of them say, nothing is under way.
std::optional<int64_t> Coordinator::group_to_recover(const Generation& next) const {
  if (!next.group) return std::nullopt;
  std::optional<int64_t> from;
  for (const GenerationMember& m : next.members) {
    const int64_t group = workers_.at(m.peer).fenced->group;
    if (group == 0 || (from && *from != group)) return std::nullopt;
    from = group;
  }
  const bool known = current_ && current_->number == *from;
  return goes_on(next, known ? current_->members.size() : SIZE_MAX, workers_) ? from : std::nullopt;
}

void Coordinator::group_used(const Message& m, const messages::GroupUsed& used) {
  if (m.generation <= group_used_) return;
  group_used_ = m.generation;
  world_.event("data_plane", {{"generation", m.generation}, {"plane", "nccl"}, {"group", used.made}});
}

// Its generation does without.
void Coordinator::group_missing(const Worker& worker, const messages::GroupMissing& missing) {
  const bool present = missing.of == current_->number || (proposal_ && missing.of == proposal_->number);
  if (phase_ == Phase::running && present) no_group(worker, missing.of, missing.reason);
}

void Coordinator::group_failed(const Worker& worker, const Message& m, const messages::GroupFailed& failed,
                               Seconds now) {
  if (phase_ != Phase::running) return;  // it has been given up already
  // The others may have made the step, and gone on: to an end in which they would not miss this one.
  const bool behind =
      m.generation == current_->follows && worker.generation == m.generation && current_->index_of(worker.peer) >= 0;
  if (m.generation != current_->number && !behind) return;
  no_group(worker, m.generation, failed.reason);
  group_failed_ = true;
  fence("the group of GPUs failed: " + group_trouble_, now);
}

void Coordinator::no_group(const Worker& worker, int64_t of, const std::string& reason) {
  group_trouble_ = fmt::format("worker {}: {}", worker.id, reason);
  world_.event("data_plane", {{"generation", of}, {"plane", "host"}, {"worker", worker.id}, {"reason", reason}});
}

// What the tensors of the present generation travel by, and why not by NCCL.
Json Coordinator::data_plane() const {
  if (current_->group && group_used_ == current_->number) return {{"kind", "nccl"}};
  std::vector<PeerId> peers;
  for (const GenerationMember& m : current_->members)
    if (workers_.contains(m.peer)) peers.push_back(m.peer);
  std::string reason = current_->group ? group_trouble_ : why_no_group(peers);
  if (reason.empty()) reason = "the group is being formed";
  return {{"kind", "host"}, {"reason", reason}};
}

}  // namespace elinvar
