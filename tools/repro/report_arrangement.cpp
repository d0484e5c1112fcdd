#include "tools/repro/report_arrangement.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/repro/report_curves.h"

namespace elinvar {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

namespace {

constexpr size_t kMostGenerations = 60;
constexpr size_t kMostMembers = 1500;  // of all generations together

std::string counted(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "embeddings, h.1 to head" for runs of segments; "" if the names are not known.
std::string named(const std::vector<Interval>& runs, const std::vector<std::string>& names) {
  std::string text;
  for (const Interval& run : runs) {
    if (run.end > static_cast<int>(names.size())) return "";
    const auto first = static_cast<size_t>(run.begin), last = static_cast<size_t>(run.end) - 1;
    text += (text.empty() ? "" : ", ") + names[first];
    if (last > first) text += " to " + names[last];
  }
  return text;
}

Ordered stage_of(const Generation& g, size_t first, size_t end, const std::vector<std::string>& names) {
  const ReplicaPlace& place = g.members[first].place;
  Ordered stage = {{"segments", Ordered::array()},
                   {"names", named(place.segments, names)},
                   {"work", rounded(place.work)},
                   {"members", Ordered::array()}};
  for (const Interval& run : place.segments) stage["segments"].push_back({run.begin, run.end});
  for (size_t i = first; i < end; ++i) {
    const GenerationMember& m = g.members[i];
    stage["members"].push_back({{"id", m.id},
                                {"shards", {m.place.shards.begin, m.place.shards.end}},
                                {"part", rounded(portion(g.shards, m.place))}});
  }
  return stage;
}

// Members of a replica are neighbours, and within it those of a stage.
Ordered replica_of(const Generation& g, size_t first, size_t end, const std::vector<std::string>& names) {
  Ordered replica = {{"vranks", Ordered::array()}, {"stages", Ordered::array()}};
  for (const Interval& run : g.members[first].share) replica["vranks"].push_back({run.begin, run.end});
  for (size_t i = first, next = first; i < end; i = next) {
    while (next < end && g.members[next].place.stage == g.members[i].place.stage) ++next;
    replica["stages"].push_back(stage_of(g, i, next, names));
  }
  return replica;
}

struct Sizes {
  size_t replicas = 0, stages = 1, members = 1;  // the most stages of a replica, and members of a stage
};

Sizes sizes_of(const Generation& g) {
  std::map<std::pair<int, int>, size_t> members;
  Sizes sizes;
  for (const GenerationMember& m : g.members) {
    sizes.replicas = std::max(sizes.replicas, static_cast<size_t>(m.place.replica) + 1);
    sizes.stages = std::max(sizes.stages, static_cast<size_t>(m.place.stage) + 1);
    sizes.members = std::max(sizes.members, ++members[{m.place.replica, m.place.stage}]);
  }
  return sizes;
}

std::string division_text(const Generation& g) {
  std::string text;
  if (g.shards == 0) {
    text = "each computes all of the network";
  } else {
    const Sizes sizes = sizes_of(g);
    text = counted(sizes.replicas, "model replica");
    if (sizes.stages > 1) text += fmt::format(" of {}", counted(sizes.stages, "stage"));
    if (sizes.members > 1)
      text += fmt::format("{} up to {} that share virtual shards", sizes.stages > 1 ? ", each of" : " of",
                          counted(sizes.members, "worker"));
  }
  if (!g.sharding) return text;
  const BucketDeal& keepers = g.sharding->keepers;
  const size_t copies = std::min(static_cast<size_t>(std::max(keepers.copies, 1)), keepers.ids.size());
  return text + fmt::format("; zero={}: {} of the optimizer's state among {}", g.sharding->zero,
                            copies == 1 ? "1 copy" : fmt::format("{} copies", copies),
                            counted(keepers.ids.size(), "worker"));
}

// The first steps of planned generations, whose records do not know them.
std::map<int64_t, int64_t> switches(const std::vector<Json>& events) {
  std::map<int64_t, int64_t> steps;
  for (const Json& event : events)
    if (event.value("event", Json()) == "switched") {
      const Json generation = event.value("generation", Json()), step = event.value("step", Json());
      if (generation.is_number_integer() && step.is_number_integer())
        steps[generation.get<int64_t>()] = step.get<int64_t>();
    }
  return steps;
}

}  // namespace

ReportedSegments segments_of(const std::vector<Json>& events) {
  ReportedSegments segments;
  for (const Json& event : events) {
    if (event.value("event", Json()) != "segments") continue;
    try {
      segments = {.names = event.at("names").get<std::vector<std::string>>(),
                  .seconds = event.at("seconds").get<std::vector<double>>()};
    } catch (const Json::exception&) {  // of another version
    }
  }
  return segments;
}

Ordered arrangements(const std::vector<Generation>& generations, const std::vector<Json>& events) {
  if (std::ranges::none_of(generations, [](const Generation& g) { return g.shards > 0 || g.sharding; })) return nullptr;
  const std::vector<std::string> names = segments_of(events).names;
  const std::map<int64_t, int64_t> switched = switches(events);
  const size_t begin = generations.size() - std::min(generations.size(), kMostGenerations);
  size_t room = kMostMembers;
  std::vector<Ordered> newest_first;
  for (size_t at = generations.size(); at-- > begin;) {
    const Generation& g = generations[at];
    Ordered step = nullptr;
    if (g.first_step >= 0) step = g.first_step + 1;
    else if (const auto found = switched.find(g.number); found != switched.end()) step = found->second + 1;
    Ordered json = {{"number", g.number},          {"step", step},       {"workers", g.members.size()},
                    {"text", division_text(g)},    {"reason", g.reason}, {"replicas_left_out", 0},
                    {"replicas", Ordered::array()}};
    size_t left_out = 0;
    for (size_t i = 0, next = 0; g.shards > 0 && i < g.members.size(); i = next) {
      while (next < g.members.size() && g.members[next].place.replica == g.members[i].place.replica) ++next;
      if (next - i > room) {
        ++left_out;
        continue;
      }
      room -= next - i;
      json["replicas"].push_back(replica_of(g, i, next, names));
    }
    json["replicas_left_out"] = left_out;
    newest_first.push_back(std::move(json));
  }
  Ordered json = {{"generations", Ordered::array()}, {"generations_left_out", begin}};
  for (auto g = newest_first.rbegin(); g != newest_first.rend(); ++g) json["generations"].push_back(std::move(*g));
  return json;
}

}  // namespace elinvar
