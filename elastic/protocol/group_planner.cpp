#include "elastic/protocol/group_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace elinvar {

using Json = nlohmann::json;
using Phase = JobState::Phase;

constexpr int kMostFailures = 3;  // failures in the middle of a step, after which no more groups are formed

namespace {

// Returns why a group of GPUs does not add up gradients in this generation, or "".
std::string why_no_sums(const Generation& generation) {
  return generation.sharding && generation.sharding->zero >= 2 ? "gradients are sharded" : "";
}

// Members send each other parameters after updates if not all of them update all parameters.
bool exchanges_parameters(const Generation& generation) {
  if (!generation.sharding || generation.sharding->zero == 0 || generation.sharding->zero >= 3) return false;
  const BucketDeal& keepers = generation.sharding->keepers;
  return std::min(static_cast<size_t>(keepers.copies), keepers.ids.size()) < generation.members.size();
}

// Returns whether members compute rank gradients together.
bool divides(const Generation& generation) { return generation.divides_shards() || generation.divides_segments(); }

// Returns what goes from GPU to GPU, for people.
std::string carries(const Generation& generation) {
  std::vector<std::string> all;
  const bool sums = why_no_sums(generation).empty();
  if (sums) all.emplace_back("gradients");
  if (exchanges_parameters(generation)) all.emplace_back("parameters");
  if (generation.divides_shards()) all.emplace_back("values of shards");
  if (generation.divides_segments()) all.emplace_back("values between stages");
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

std::string GroupPlanner::why_none(const Generation& generation) const {
  if (generation.members.size() < 2) return "a worker alone sends nothing";
  const std::string why_no_sums = elinvar::why_no_sums(generation);
  if (!why_no_sums.empty() && !exchanges_parameters(generation) && !divides(generation)) return why_no_sums;
  if (failures_ >= kMostFailures) return fmt::format("groups have failed {} times, at last: {}", failures_, trouble_);
  std::string version;
  std::map<std::string, int> places;
  for (const GenerationMember& m : generation.members) {
    const auto found = job_.workers.find(m.peer);
    if (found == job_.workers.end()) continue;  // it is lost
    const Worker& worker = found->second;
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

// Returns whether a group of this many members can become that of `next`: it keeps all members, or its members can
// shrink it.
bool goes_on(const Generation& next, size_t members, const Roster& workers) {
  if (next.members.size() == members) return true;
  return std::all_of(next.members.begin(), next.members.end(),
                     [&](const GenerationMember& m) { return workers.at(m.peer).about.nccl.shrinks; });
}

}  // namespace

std::optional<int64_t> GroupPlanner::source_of_planned(const Generation& next) const {
  const Generation& current = *job_.current;
  if (!next.group || !current.group || used_ != current.number) return std::nullopt;
  for (const GenerationMember& m : next.members)
    if (current.index_of(m.peer) < 0) return std::nullopt;
  return goes_on(next, current.members.size(), job_.workers) ? std::optional(current.number) : std::nullopt;
}

std::optional<int64_t> GroupPlanner::source_of_recovered(const Generation& next) const {
  if (!next.group) return std::nullopt;
  std::optional<int64_t> from;
  for (const GenerationMember& m : next.members) {
    const int64_t group = job_.workers.at(m.peer).fenced->group;
    if (group == 0 || (from && *from != group)) return std::nullopt;
    from = group;
  }
  const bool known = job_.current && job_.current->number == *from;
  return goes_on(next, known ? job_.current->members.size() : SIZE_MAX, job_.workers) ? from : std::nullopt;
}

void GroupPlanner::created(const Generation& generation) {
  if (generation.group) trouble_.clear();
}

void GroupPlanner::used(const Message& m, const messages::GroupUsed& used) {
  if (m.generation <= used_) return;
  used_ = m.generation;
  // Members may be in a planned generation before the coordinator knows.
  const std::optional<Generation>& of =
      job_.proposal && job_.proposal->number == m.generation ? job_.proposal : job_.current;
  if (!of || of->number != m.generation) return;  // it is over
  job_.world.event("data_plane",
                   {{"generation", m.generation}, {"plane", "nccl"}, {"group", used.made}, {"carries", carries(*of)}});
}

void GroupPlanner::missing(const Worker& worker, const messages::GroupMissing& missing) {
  if (job_.phase != Phase::running) return;
  const bool present = missing.of == job_.current->number || (job_.proposal && missing.of == job_.proposal->number);
  if (present) unavailable(worker, missing.of, missing.reason);
}

FenceReason GroupPlanner::failed(const Worker& worker, const Message& m, const messages::GroupFailed& failed) {
  if (job_.phase != Phase::running) return std::nullopt;  // the group was given up already
  const Generation& current = *job_.current;
  // The others may have made the step and continued to a state in which they would not miss this member.
  const bool behind =
      m.generation == current.follows && worker.generation == m.generation && current.index_of(worker.peer) >= 0;
  if (m.generation != current.number && !behind) return std::nullopt;
  unavailable(worker, m.generation, failed.reason);
  failed_ = true;
  return "the group of GPUs failed: " + trouble_;
}

void GroupPlanner::unavailable(const Worker& worker, int64_t of, const std::string& reason) {
  trouble_ = fmt::format("worker {}: {}", worker.id, reason);
  job_.world.event("data_plane", {{"generation", of}, {"plane", "host"}, {"worker", worker.id}, {"reason", reason}});
}

void GroupPlanner::fence_answered() {
  if (std::exchange(failed_, false)) ++failures_;
}

Json GroupPlanner::data_plane() const {
  const Generation& current = *job_.current;
  const bool used = current.group && used_ == current.number;
  std::string reason = current.group ? trouble_ : why_none(current);
  if (reason.empty()) reason = "the group is being formed";
  const auto plane = [&](const std::string& why_not) {
    if (why_not.empty() && used) return Json{{"kind", "nccl"}};
    return Json{{"kind", "host"}, {"reason", why_not.empty() ? reason : why_not}};
  };
  Json json = plane(current.members.size() < 2 ? "" : why_no_sums(current));
  if (exchanges_parameters(current)) json["parameters"] = plane("");
  if (divides(current)) json["within"] = plane("");
  return json;
}

}  // namespace elinvar
