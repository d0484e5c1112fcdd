// The coordinator: which generations are to be groups of GPUs, and what became of that (PROTOCOL.md, "Groups of GPUs").
#include <fmt/format.h>

#include <map>

#include "elastic/coordinator.h"

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
    const Json about = worker.about.value("nccl", Json{{"why_not", "it says nothing of NCCL"}});
    if (about.contains("why_not"))
      return fmt::format("worker {} has no NCCL: {}", worker.id, about["why_not"].get<std::string>());
    const std::string has = about.value("version", ""), place = about.value("place", "");
    if (version.empty()) version = has;
    if (has != version) return fmt::format("worker {} has {}, others have {}", worker.id, has, version);
    const auto [other, alone] = places.emplace(place, worker.id);
    if (!alone) return fmt::format("workers {} and {} share {}", other->second, worker.id, place);
  }
  return "";
}

void Coordinator::group(const Worker& worker, const Message& m, Seconds now) {
  if (m.kind == "group_used") {
    if (m.generation <= group_used_) return;
    group_used_ = m.generation;
    world_.event("data_plane", {{"generation", m.generation}, {"plane", "nccl"}});
    return;
  }
  const std::string reason = m.body.at("reason").get<std::string>();
  const int64_t of = m.kind == "group_missing" ? m.body.at("of").get<int64_t>() : m.generation;
  const bool newest = (current_ && of == current_->number) || (proposal_ && of == proposal_->number);
  if (!newest || phase_ != Phase::running) return;  // it has been given up already
  if (m.kind == "group_failed" && of != current_->number) return;
  group_trouble_ = fmt::format("worker {}: {}", worker.id, reason);
  world_.event("data_plane", {{"generation", of}, {"plane", "host"}, {"worker", worker.id}, {"reason", reason}});
  if (m.kind == "group_missing") return;  // its generation does without
  group_failed_ = true;
  fence("the group of GPUs failed: " + group_trouble_, now);
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
