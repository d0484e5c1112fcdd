#include "elastic/generation.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "tensor/check.h"
#include "tensor/file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json to_json(const std::vector<Interval>& intervals) {
  Json json = Json::array();
  for (const Interval& i : intervals) json.push_back({i.begin, i.end});
  return json;
}

std::vector<Interval> intervals_from(const Json& json) {
  std::vector<Interval> intervals;
  for (const Json& i : json) {
    intervals.push_back({i.at(0).get<int>(), i.at(1).get<int>()});
    const Interval& now = intervals.back();
    const int low = intervals.size() > 1 ? intervals[intervals.size() - 2].end : 0;
    if (now.begin < low || now.end <= now.begin) fail("[generation] intervals out of order: {}", json.dump());
  }
  return intervals;
}

}  // namespace

int Generation::index_of(PeerId peer) const {
  for (size_t i = 0; i < members.size(); ++i)
    if (members[i].peer == peer) return static_cast<int>(i);
  return -1;
}

const std::vector<Interval>& Generation::share(int member, int64_t step) const {
  const GenerationMember& m = members[static_cast<size_t>(member)];
  return step == first_step ? m.first_share : m.share;
}

Json to_json(const Generation& g) {
  Json json = {{"number", g.number},   {"run", g.run},         {"first_step", g.first_step},
               {"follows", g.follows}, {"next_id", g.next_id}, {"checkpoint", g.checkpoint},
               {"stop", g.stop},       {"reason", g.reason},   {"members", Json::array()}};
  for (const GenerationMember& m : g.members)
    json["members"].push_back({{"id", m.id},
                               {"peer", m.peer},
                               {"endpoint", m.endpoint},
                               {"share", to_json(m.share)},
                               {"first_share", to_json(m.first_share)}});
  return json;
}

Generation generation_from(const Json& json) {
  try {
    Generation g{.number = json.at("number").get<int64_t>(),
                 .run = json.at("run").get<uint64_t>(),
                 .first_step = json.at("first_step").get<int64_t>(),
                 .follows = json.at("follows").get<int64_t>(),
                 .members = {},
                 .next_id = json.at("next_id").get<int>(),
                 .checkpoint = json.at("checkpoint").get<bool>(),
                 .stop = json.at("stop").get<bool>(),
                 .reason = json.at("reason").get<std::string>()};
    for (const Json& m : json.at("members"))
      g.members.push_back({.id = m.at("id").get<int>(),
                           .peer = m.at("peer").get<uint64_t>(),
                           .endpoint = m.at("endpoint").get<std::string>(),
                           .share = intervals_from(m.at("share")),
                           .first_share = intervals_from(m.at("first_share"))});
    return g;
  } catch (const Json::exception& error) {
    fail("[generation] malformed record: {}", error.what());
  }
}

GenerationStore::GenerationStore(fs::path run_directory) : directory_(std::move(run_directory) / "generations") {}

bool GenerationStore::create(const Generation& generation) {
  make_directories(directory_);
  const fs::path final = directory_ / fmt::format("{}.json", generation.number);
  const fs::path aside = directory_ / fmt::format(".writing-{}-{}", generation.number, ::getpid());
  fs::remove(aside);
  {
    File file = File::create(aside);
    file.write(to_json(generation).dump(2) + "\n");
    file.sync();
  }
  // A link, unlike a rename, fails where the name exists.
  const bool created = ::link(aside.c_str(), final.c_str()) == 0;
  const int error = errno;
  fs::remove(aside);
  if (!created && error != EEXIST) fail("cannot create {}: {}", final.string(), std::strerror(error));
  if (created) sync_directory(directory_);
  return created;
}

std::optional<Generation> GenerationStore::newest() const {
  int64_t newest = 0;
  if (!fs::exists(directory_)) return std::nullopt;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && std::string_view(end) == ".json") newest = std::max(newest, number);
  }
  if (newest == 0) return std::nullopt;
  const fs::path path = directory_ / fmt::format("{}.json", newest);
  const Json json = Json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) fail("{} is no JSON", path.string());
  Generation generation = generation_from(json);
  if (generation.number != newest) fail("{} is the record of generation {}", path.string(), generation.number);
  return generation;
}

}  // namespace elinvar
