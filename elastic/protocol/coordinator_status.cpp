// The status of a job as JSON, for `train ctl RUN status`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {

using Json = nlohmann::json;
using Phase = JobState::Phase;

namespace {

// Returns the number of buckets that each worker keeps with ZeRO, by id.
std::map<int, int> buckets_kept(const Generation& generation, const Roster& workers) {
  std::map<int, int> kept;
  int buckets = 0;
  for (const auto& [peer, w] : workers) buckets = std::max(buckets, w.about.shards);
  if (!generation.sharding || buckets == 0) return kept;
  for (const std::vector<int>& keepers : keepers_of(generation.sharding->keepers, buckets))
    for (const int id : keepers) ++kept[id];
  return kept;
}

Json pairs_of(const std::vector<Interval>& intervals) {
  Json json = Json::array();
  for (const Interval& i : intervals) json.push_back({i.begin, i.end});
  return json;
}

// Returns the part of a step that a member computes. `vranks` is the number of virtual ranks of the whole step.
Json computed_by(const Generation& generation, const GenerationMember& member, int vranks) {
  Json work = {{"virtual_ranks", total(member.share)}, {"ranks", pairs_of(member.share)}};
  double part = 1.0 * total(member.share) / vranks;
  if (generation.shards > 0) {
    const ReplicaPlace& place = member.place;
    part *= portion(generation.shards, place);
    work["replica"] = place.replica;
    work["virtual_shards"] = {place.shards.begin, place.shards.end};
    work["stage"] = place.stage;
    work["stage_work"] = place.work;
    work["segments"] = pairs_of(place.segments);
  }
  work["part"] = part;
  return work;
}

}  // namespace

Json Coordinator::status(Seconds now) const {
  const std::optional<Generation>& current = job_.current;
  const std::optional<Seconds> deserted = liveness_.deserted();
  Json json = {{"phase", name_of(deserted ? Phase::holding : job_.phase)},
               {"generation", current ? current->number : 0},
               {"step", job_.completed()},
               {"steps", job_.steps},
               {"virtual_ranks", job_.options.plan.vranks},
               {"workers", Json::array()}};
  if (deserted)
    json["holding"] = {
        {"reason", "all who have the state are silent"}, {"seconds", now - *deserted}, {"limit", job_.options.hold}};
  else if (job_.phase == Phase::holding)
    json["holding"] = {{"reason", fmt::format("fewer than {} workers", job_.options.min_workers)}};
  if (current) json["data_plane"] = groups_.data_plane();
  if (job_.sharded) json["arrangement"] = {{"zero", job_.arrangement.zero}, {"copies", job_.arrangement.copies}};
  if (job_.arrangement.replica() > 1) {
    json["arrangement"]["tp"] = job_.arrangement.tp;
    json["arrangement"]["pp"] = job_.arrangement.pp;
    if (job_.segments.names) json["segments"] = *job_.segments.names;
  }
  if (job_.automatic) json["automatic"] = true;
  const std::map<int, int> kept = current ? buckets_kept(*current, job_.workers) : std::map<int, int>();
  for (const auto& [peer, w] : job_.workers) {
    Json worker = {{"id", w.id},
                   {"state", w.draining ? "draining" : name_of(w.state)},
                   {"step", w.completed},
                   {"silent_seconds", now - w.seen},
                   {"resident_bytes", w.resident},
                   {"about", description_of(w.about)}};
    if (w.gpu_peak > 0) worker["gpu_peak_bytes"] = w.gpu_peak;
    if (w.work.parts > 0) worker["at"] = {{"what", w.work.what}, {"part", w.work.part}, {"parts", w.work.parts}};
    const int index = current ? current->index_of(peer) : -1;
    worker["virtual_ranks"] = 0;
    if (index >= 0)
      worker.update(computed_by(*current, current->members[static_cast<size_t>(index)], job_.options.plan.vranks));
    if (job_.sharded) {
      worker["buckets"] = w.about.shards;
      worker["buckets_kept"] = kept.contains(w.id) ? kept.at(w.id) : 0;
    }
    json["workers"].push_back(worker);
  }
  std::sort(json["workers"].begin(), json["workers"].end(),
            [](const Json& a, const Json& b) { return a["id"] < b["id"]; });
  return json;
}

}  // namespace elinvar
