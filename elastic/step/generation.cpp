#include "elastic/step/generation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/fields.h"
#include "tensor/base/check.h"
#include "tensor/base/reason.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

Json to_json(const std::vector<Interval>& intervals) {
  Json json = Json::array();
  for (const Interval& i : intervals) json.push_back({i.begin, i.end});
  return json;
}

// Reads an integer. Json::get() would drop the upper bits of a larger one, and would take a fraction.
template <class T>
T count_from(const Json& json) {
  if (const std::optional<T> value = integer_from<T>(json)) return *value;
  fail("[generation] expected an integer from {} to {}, got {}", kLeastReceived<T>, kMostReceived<T>, json.dump());
}

std::vector<Interval> intervals_from(const Json& json) {
  std::vector<Interval> intervals;
  for (const Json& i : json) {
    intervals.push_back({count_from<int>(i.at(0)), count_from<int>(i.at(1))});
    const Interval& now = intervals.back();
    const int low = intervals.size() > 1 ? intervals[intervals.size() - 2].end : 0;
    if (now.begin < low || now.end <= now.begin) fail("[generation] intervals out of order: {}", json.dump());
  }
  return intervals;
}

Json to_json(const GenerationScaling& scaling) {
  Json json = {{"batch", scaling.batch},
               {"base_workers", scaling.base_workers},
               {"history", scaling.history},
               {"recorded", Json::array()}};
  if (scaling.scaling_state) json["pace"] = to_json(*scaling.scaling_state);
  for (const auto& [step, batch] : scaling.recorded) json["recorded"].push_back({step, batch});
  return json;
}

GenerationScaling scaling_from(const Json& json) {
  GenerationScaling scaling{.batch = count_from<int64_t>(json.at("batch")),
                            .base_workers = count_from<int>(json.at("base_workers")),
                            .history = count_from<int64_t>(json.at("history"))};
  if (json.contains("pace")) scaling.scaling_state = scaling_state_from(json["pace"]);
  for (const Json& change : json.at("recorded"))
    scaling.recorded.push_back({count_from<int64_t>(change.at(0)), count_from<int64_t>(change.at(1))});
  return scaling;
}

// The stages of a replica have all segments between them, each once, and as many as those of other replicas.
void check_segments(const Generation& g) {
  int all = 0;
  for (size_t first = 0, next = 0; first < g.members.size(); first = next) {
    std::vector<Interval> segments;
    for (int stage = -1; next < g.members.size() && g.members[next].place.replica == g.members[first].place.replica;
         ++next) {
      const ReplicaPlace& place = g.members[next].place;
      if (place.stage == stage) continue;
      stage = place.stage;
      segments.insert(segments.end(), place.segments.begin(), place.segments.end());
    }
    std::sort(segments.begin(), segments.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    int end = 0;
    for (const Interval& run : segments) {
      if (run.begin != end) fail("[generation] replica {} has not each segment once", g.members[first].place.replica);
      end = run.end;
    }
    if (all > 0 && end > 0 && end != all)
      fail("[generation] replica {} has {} segments, others {}", g.members[first].place.replica, end, all);
    all = std::max(all, end);
  }
}

// Members of a replica are neighbours with the same virtual ranks, and so are those of a stage with the same segments.
// The latter have all shards between them, in order.
void check_places(const Generation& g) {
  if (g.shards == 0) return;
  const GenerationMember* before = nullptr;
  for (const GenerationMember& m : g.members) {
    const ReplicaPlace& now = m.place;
    const bool same_replica = before != nullptr && now.replica == before->place.replica;
    const bool same_stage = same_replica && now.stage == before->place.stage;
    const bool ended = before == nullptr || before->place.shards.end == g.shards;
    const bool in_order =
        same_stage     ? now.shards.begin == before->place.shards.end && now.segments == before->place.segments
        : same_replica ? ended && now.shards.begin == 0 && now.stage == before->place.stage + 1 && !now.segments.empty()
                       : ended && now.shards.begin == 0 && now.stage == 0 &&
                             now.replica == (before == nullptr ? 0 : before->place.replica + 1);
    if (!in_order || now.shards.size() < 1 || now.shards.end > g.shards || !(now.work > 0 && now.work <= 1))
      fail("[generation] member {} has shards {} to {} of {} in stage {} of replica {}", m.id, now.shards.begin,
           now.shards.end, g.shards, now.stage, now.replica);
    if (same_replica && (m.share != before->share || m.first_share != before->first_share))
      fail("[generation] member {} has other virtual ranks than replica {}", m.id, now.replica);
    before = &m;
  }
  if (before->place.shards.end != g.shards)
    fail("[generation] replica {} has shards up to {} of {}", before->place.replica, before->place.shards.end,
         g.shards);
  check_segments(g);
}

Json to_json(const BucketDeal& deal) { return {{"ids", deal.ids}, {"copies", deal.copies}}; }

BucketDeal deal_from(const Json& json) {
  BucketDeal deal{.ids = {}, .copies = count_from<int>(json.at("copies"))};
  for (const Json& id : json.at("ids")) deal.ids.push_back(count_from<int>(id));
  return deal;
}

}  // namespace

int Generation::index_of(PeerId peer) const {
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i].peer == peer) return static_cast<int>(i);
  return -1;
}

int Generation::index_of_id(int id) const {
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i].id == id) return static_cast<int>(i);
  return -1;
}

bool Generation::divides_shards() const {
  return std::ranges::any_of(members, [this](const GenerationMember& m) { return m.place.shards.end < shards; });
}

bool Generation::divides_segments() const {
  return std::ranges::any_of(members, [](const GenerationMember& m) { return m.place.stage > 0; });
}

std::vector<int> Generation::ids() const {
  std::vector<int> ids;
  for (const GenerationMember& m : members) ids.push_back(m.id);
  return ids;
}

int Generation::held_with(int64_t step) const {
  if (!sharding) return 0;
  return step <= first_step ? sharding->zero_before : sharding->zero;
}

const std::vector<Interval>& Generation::share(int member, int64_t step) const {
  const GenerationMember& m = members[static_cast<size_t>(member)];
  return step == first_step ? m.first_share : m.share;
}

Json to_json(const Generation& g) {
  Json json = {{"number", g.number},   {"run", g.run},         {"first_step", g.first_step},
               {"follows", g.follows}, {"next_id", g.next_id}, {"checkpoint", g.checkpoint},
               {"stop", g.stop},       {"reason", g.reason},   {"members", Json::array()}};
  if (g.scaling) json["scaling"] = to_json(*g.scaling);
  if (g.trial) json["trial"] = g.trial->replay ? Json{{"replay", *g.trial->replay}} : Json::object();
  if (g.group) json["group"] = true;
  if (g.group_from) json["group_from"] = *g.group_from;
  if (g.sharding)
    json["sharding"] = {{"zero", g.sharding->zero},
                        {"keepers", to_json(g.sharding->keepers)},
                        {"holders", to_json(g.sharding->holders)},
                        {"whole", g.sharding->whole},
                        {"zero_before", g.sharding->zero_before}};
  if (g.arrangement)
    json["arrangement"] = {{"zero", g.arrangement->zero},
                           {"copies", g.arrangement->copies},
                           {"tp", g.arrangement->tp},
                           {"pp", g.arrangement->pp}};
  if (g.automatic) json["automatic"] = true;
  if (g.shards > 0) json["shards"] = g.shards;
  for (const GenerationMember& m : g.members) {
    Json member = {{"id", m.id},
                   {"peer", m.peer},
                   {"endpoint", m.endpoint},
                   {"share", to_json(m.share)},
                   {"first_share", to_json(m.first_share)}};
    if (g.shards > 0) {
      member["replica"] = m.place.replica;
      member["shards"] = {m.place.shards.begin, m.place.shards.end};
    }
    if (!m.place.segments.empty()) {
      member["stage"] = m.place.stage;
      member["segments"] = to_json(m.place.segments);
      member["work"] = m.place.work;
    }
    json["members"].push_back(std::move(member));
  }
  return json;
}

Generation generation_from(const Json& json) {
  try {
    Generation g{.number = count_from<int64_t>(json.at("number")),
                 .run = json.at("run").get<uint64_t>(),
                 .first_step = count_from<int64_t>(json.at("first_step")),
                 .follows = count_from<int64_t>(json.at("follows")),
                 .members = {},
                 .next_id = count_from<int>(json.at("next_id")),
                 .checkpoint = json.at("checkpoint").get<bool>(),
                 .stop = json.at("stop").get<bool>(),
                 .reason = json.at("reason").get<std::string>()};
    if (json.contains("scaling")) g.scaling = scaling_from(json["scaling"]);
    if (json.contains("trial")) g.trial = Trial{};
    if (g.trial && json["trial"].contains("replay")) g.trial->replay = count_from<int64_t>(json["trial"]["replay"]);
    g.group = json.value("group", false);
    if (json.contains("group_from")) g.group_from = count_from<int64_t>(json["group_from"]);
    if (json.contains("sharding")) {
      const Json& sharding = json["sharding"];
      g.sharding = Sharding{.zero = count_from<int>(sharding.at("zero")),
                            .keepers = deal_from(sharding.at("keepers")),
                            .holders = deal_from(sharding.at("holders")),
                            .whole = sharding.at("whole").get<bool>()};
      g.sharding->zero_before = count_from<int>(sharding.value("zero_before", Json(g.sharding->zero)));
    }
    if (json.contains("arrangement")) {
      const Json& arrangement = json["arrangement"];
      g.arrangement = Arrangement{.zero = count_from<int>(arrangement.at("zero")),
                                  .copies = count_from<int>(arrangement.at("copies")),
                                  .tp = count_from<int>(arrangement.at("tp")),
                                  .pp = count_from<int>(arrangement.at("pp"))};
    }
    g.automatic = json.value("automatic", false);
    g.shards = count_from<int>(json.value("shards", Json(0)));
    for (const Json& m : json.at("members")) {
      g.members.push_back({.id = count_from<int>(m.at("id")),
                           .peer = m.at("peer").get<uint64_t>(),
                           .endpoint = m.at("endpoint").get<std::string>(),
                           .share = intervals_from(m.at("share")),
                           .first_share = intervals_from(m.at("first_share"))});
      if (g.shards > 0)
        g.members.back().place = {
            .replica = count_from<int>(m.at("replica")),
            .shards = {count_from<int>(m.at("shards").at(0)), count_from<int>(m.at("shards").at(1))},
            .stage = count_from<int>(m.value("stage", Json(0))),
            .segments = intervals_from(m.value("segments", Json::array())),
            .work = m.value("work", 1.0)};
    }
    check_places(g);
    return g;
  } catch (const Json::exception& error) {
    fail("[generation] malformed record: {}", reason_of(error));
  }
}

}  // namespace elinvar
