#include "tools/repro/report_data.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "elastic/ledger/events.h"
#include "elastic/step/generation.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tools/repro/report_arrangement.h"
#include "tools/repro/report_curves.h"
#include "tools/repro/report_step.h"
#include "tools/repro/report_timeline.h"
#include "tools/training/profile_report.h"

extern const char* const kReportPage;  // from tools/repro/page/ in the frame of tools/web/page/

namespace elinvar {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

namespace {

constexpr size_t kMostPoints = 1200;  // points of a curve: more than a screen has columns
constexpr size_t kMostEvents = 3000;
constexpr size_t kMostProblems = 8;
constexpr size_t kMostWorkers = 100;      // in a table
constexpr size_t kMostEnvironments = 30;  // different environments

// Returns how the leader spent the time of a step, and what each worker did, over all undisturbed steps with known
// times.
Ordered step_time(const std::vector<CurvePoint>& points, const std::vector<Generation>& generations) {
  std::map<int64_t, const Generation*> records;
  for (const Generation& g : generations) records[g.number] = &g;
  std::vector<double> lengths;
  const auto length = [&](size_t i) {
    const CurvePoint &a = points[i - 1], &b = points[i];
    return b.step == a.step + 1 && b.generation == a.generation ? b.time - a.time : CurvePoint::kNone;
  };
  for (size_t i = 1; i < points.size(); ++i)
    if (const double seconds = length(i); seconds > 0) lengths.push_back(seconds);
  if (lengths.empty()) return nullptr;
  std::nth_element(lengths.begin(), lengths.begin() + static_cast<ptrdiff_t>(lengths.size() / 2), lengths.end());
  const double longest = 4 * lengths[lengths.size() / 2] + 0.01;  // longer steps were disturbed

  struct Worker {
    double steps = 0, leaves = 0, seconds = 0, leaf_seconds = 0;
  };
  std::map<int, Worker> workers;
  double steps = 0, seconds = 0, leaves = 0, reduce = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    const CurvePoint& p = points[i];
    const double step = length(i);
    const auto record = records.find(p.generation);
    if (!(step > 0) || step > longest || !std::isfinite(p.reduce_seconds) || record == records.end()) continue;
    const std::vector<GenerationMember>& members = record->second->members;
    if (members.empty() || p.leaf_seconds.size() != members.size()) continue;
    ++steps;
    seconds += step;
    reduce += p.reduce_seconds;
    leaves += p.leaf_seconds[0] * total(members[0].share);
    for (size_t m = 0; m < members.size(); ++m) {
      Worker& worker = workers[members[m].id];
      const double count = total(members[m].share);
      ++worker.steps;
      worker.leaves += count;
      worker.seconds += step;
      worker.leaf_seconds += count * p.leaf_seconds[m];
    }
  }
  if (steps == 0) return nullptr;
  Ordered json = {{"steps", static_cast<int64_t>(steps)},
                  {"seconds", rounded(seconds / steps)},
                  {"leaves", rounded(leaves / steps)},
                  {"reduce", rounded(reduce / steps)},
                  {"workers", Ordered::array()}};
  std::vector<double> most;  // steps
  for (const auto& [id, w] : workers) most.push_back(w.steps);
  std::sort(most.begin(), most.end(), std::greater<>());
  for (const auto& [id, w] : workers)
    if (w.steps >= most[std::min(most.size(), kMostWorkers) - 1] && json["workers"].size() < kMostWorkers)
      json["workers"].push_back({{"id", id},
                                 {"steps", static_cast<int64_t>(w.steps)},
                                 {"leaves", rounded(w.leaves / w.steps)},
                                 {"leaf", rounded(w.leaves > 0 ? w.leaf_seconds / w.leaves : CurvePoint::kNone)},
                                 {"busy", rounded(w.leaf_seconds / w.seconds)}});
  return json;
}

// Adds up the summaries that parts of the run write when they end; a part that was killed has none.
Ordered whole_time(const std::vector<Json>& events, const Curves& curves, const TimeAxis& axis) {
  double told = 0, training = 0;
  std::map<std::string, std::pair<double, int64_t>> lost;
  const int64_t parts = 1 + static_cast<int64_t>(axis.resumed().size());
  int64_t summaries = 0;
  for (const Json& event : events) {
    const auto summary = event.find("goodput");
    if (summary == event.end() || !summary->is_object()) continue;
    try {
      told += summary->at("seconds").get<double>();
      training += summary->at("training").get<double>();
      ++summaries;
      for (const auto& [cause, l] : summary->at("lost").items()) {
        lost[cause].first += l.at("seconds").get<double>();
        lost[cause].second += l.at("times").get<int64_t>();
      }
    } catch (const Json::exception&) {  // of another version
    }
  }
  double goodput = CurvePoint::kNone;
  if (!curves.points.empty()) goodput = curves.points.back().goodput;
  if (told > 0) goodput = training / told;
  Ordered json = {{"seconds", rounded(axis.end())},
                  {"parts", parts},
                  {"goodput", rounded(goodput)},
                  {"told_seconds", rounded(told)},
                  {"told_goodput", rounded(told > 0 ? training / told : CurvePoint::kNone)},
                  {"training", rounded(training)},
                  {"untold", std::max<int64_t>(0, parts - summaries)},
                  {"lost", Ordered::object()}};
  for (const auto& [cause, l] : lost) json["lost"][cause] = {{"seconds", rounded(l.first)}, {"times", l.second}};
  return json;
}

// Events of lower importance are left out first if there are too many.
int importance(const std::string& event) {
  static const std::map<std::string, int> known = {{"checkpoint", 0}, {"fed", 0},      {"hello", 1}, {"ready", 1},
                                                   {"switched", 2},   {"drain", 2},    {"join", 2},  {"stall", 2},
                                                   {"generation", 3}, {"lost", 4},     {"fence", 3}, {"left", 4},
                                                   {"failed", 6},     {"finished", 6}, {"start", 5}, {"resume", 5}};
  const auto found = known.find(event);
  return found == known.end() ? 4 : found->second;
}

void add_events(Ordered& json, const std::vector<Json>& events, const TimeAxis& axis) {
  std::vector<Ordered> shown;
  std::vector<int> weights;
  std::set<Json> committed;
  for (const Json& event : events) {
    Ordered fields = Ordered::object();
    for (const auto& [key, value] : event.items())
      if (key != "time" && key != "event" && key != "goodput" && key != "environment" && key != "machines")
        fields[key] = value;
    const std::string name = event.at("event").get<std::string>(), time = event.value("time", "");
    if (name == "segments") continue;  // of the network; no change of the run
    // A checkpoint is recorded by the directory that has it, and again by the coordinator.
    if (name == "checkpoint" && !committed.insert(event.value("step", Json())).second && !event.contains("state"))
      continue;
    for (auto& [key, value] : fields.items())  // peer ids; numbers in a browser have 53 bits
      if (value.is_number_unsigned() && value.get<uint64_t>() >> 53 != 0) value = value.dump();
    const std::optional<double> calendar = seconds_of_utc(time);
    shown.push_back({{"at", rounded(calendar ? axis.at(*calendar) : std::nan(""))},
                     {"time", time},
                     {"event", name},
                     {"fields", std::move(fields)}});
    weights.push_back(importance(name));
  }
  int least = 0;
  const auto kept = [&] {
    return static_cast<size_t>(std::count_if(weights.begin(), weights.end(), [&](int w) { return w >= least; }));
  };
  while (kept() > kMostEvents && least < 6) ++least;
  json["events"] = Ordered::array();
  for (size_t i = 0; i < shown.size() && json["events"].size() < kMostEvents; ++i)
    if (weights[i] >= least) json["events"].push_back(std::move(shown[i]));
  json["events_left_out"] = shown.size() - json["events"].size();
}

// Returns the validation with the best accuracy; null if none has one.
Ordered best_validation(const std::vector<ValidationPoint>& all) {
  const ValidationPoint* best = nullptr;
  for (const ValidationPoint& v : all)
    if (std::isfinite(v.accuracy) && (!best || v.accuracy > best->accuracy)) best = &v;
  if (!best) return nullptr;
  return {{"step", best->step}, {"accuracy", rounded(best->accuracy)}};
}

// Groups workers by environment: {"workers":[ids], "environment":{..}}. Id 0 is a process that never took part.
void add_environments(Ordered& json, const RunRecord& record) {
  Ordered& all = json["environments"] = Ordered::array();
  std::map<Json, size_t> known;
  size_t left_out = 0;
  for (const RunRecord::Worker& worker : record.workers()) {
    Json environment = worker.environment;
    environment.erase("command");
    const auto [found, fresh] = known.emplace(environment, all.size());
    if (fresh && all.size() == kMostEnvironments) {
      known.erase(found);
      ++left_out;
      continue;
    }
    if (fresh) all.push_back({{"workers", Ordered::array()}, {"environment", environment}});
    Ordered& ids = all[found->second]["workers"];
    if (ids.size() < kMostWorkers && std::find(ids.begin(), ids.end(), Ordered(worker.id)) == ids.end())
      ids.push_back(worker.id);
  }
  for (Ordered& group : all) std::sort(group["workers"].begin(), group["workers"].end());
  json["environments_left_out"] = left_out;
}

// Returns the records that can be read; RunRecord reports the others.
std::vector<Generation> generations_of(const fs::path& run) {
  std::vector<Generation> generations;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "generations", none)) {
    if (entry.path().extension() != ".json") continue;
    try {
      generations.push_back(generation_from(read_json_object(entry.path())));
    } catch (const std::exception&) {
      continue;
    }
  }
  std::sort(generations.begin(), generations.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
  return generations;
}

// A truncated last line is no problem: it is normal for a job that runs or was killed.
std::vector<std::string> problems_of(const std::vector<Damage>& all) {
  std::vector<std::string> problems;
  size_t more = 0;
  for (const Damage& damage : all) {
    if (damage.cut_off) continue;
    if (problems.size() < kMostProblems) problems.push_back(to_string(damage));
    else ++more;
  }
  if (more > 0) problems.push_back(fmt::format("and {} more", more));
  return problems;
}

// A step of the run's profile; null without one, or with one that cannot be read.
Ordered profile_of(const fs::path& run, const std::vector<Json>& events, const std::vector<CurvePoint>& points,
                   const std::vector<Generation>& generations, std::vector<std::string>& problems) {
  const auto generation_of = [&](int64_t step) -> const Generation* {
    const auto point = std::ranges::find(points, step, &CurvePoint::step);
    if (point == points.end()) return nullptr;
    const auto found = std::ranges::find(generations, point->generation, &Generation::number);
    return found == generations.end() ? nullptr : &*found;
  };
  try {
    const Ordered trace = joined_profile(run);
    return trace.is_null() ? trace : profiled_step(trace, segments_of(events), generation_of);
  } catch (const std::exception& wrong) {
    problems.push_back(fmt::format("the profile: {}", wrong.what()));
    return nullptr;
  }
}

}  // namespace

Ordered report_data(const RunRecord& record, const Ordered& verdict) {
  const fs::path run = fs::absolute(record.path()).lexically_normal();
  Curves curves;
  std::vector<Damage> damage = record.metrics([&](const Json& line) { curves.add(line); });
  damage.insert(damage.begin(), record.damage().begin(), record.damage().end());
  std::vector<std::string> problems = problems_of(damage);
  const std::vector<Json>& events = record.events();
  const std::vector<Generation> generations = generations_of(run);
  Ordered result = Ordered::object();
  if (fs::exists(run / "result.json"))
    result = Ordered::parse(read_file(run / "result.json"), nullptr, /*allow_exceptions=*/false);
  if (!result.is_object()) {
    problems.push_back("result.json: it is no JSON object");
    result = Ordered::object();
  }

  std::vector<double> times;
  for (const CurvePoint& p : curves.points)
    if (std::isfinite(p.time) && (times.empty() || p.time >= times.back())) times.push_back(p.time);
  const TimeAxis axis(events, times);
  std::vector<double> seconds;
  for (const CurvePoint& p : curves.points) seconds.push_back(std::isfinite(p.time) ? axis.at(p.time) : p.time);

  const auto told = [&](const char* key, const Ordered& otherwise = nullptr) { return result.value(key, otherwise); };
  const fs::path name = run.has_filename() ? run.filename() : run.parent_path().filename();
  Ordered json = {{"page", 1},
                  {"version", ELINVAR_VERSION},
                  {"written", utc_now()},
                  {"run",
                   {{"name", name.string()},
                    {"directory", run.string()},
                    {"began", events.empty() ? "" : events.front().value("time", "")}}},
                  {"status",
                   {{"what", told("status", "unfinished")},
                    {"reason", told("reason")},
                    {"step", told("step", curves.points.empty() ? 0 : curves.points.back().step)},
                    {"steps", told("steps")},
                    {"loss", told("loss")},
                    {"digest", told("digest")}}},
                  {"verdict", verdict},
                  {"unit", curves.tokens ? "tokens" : "samples"},
                  {"curves", binned(curves, kMostPoints, seconds)},
                  {"validation", thinned(curves.validation, kMostPoints)},
                  {"best_validation", best_validation(curves.validation)},
                  {"time", whole_time(events, curves, axis)},
                  {"step_time", step_time(curves.points, generations)},
                  {"timeline", timeline(events, generations, axis)},
                  {"arrangement", arrangements(generations, events)},
                  {"profile", profile_of(run, events, curves.points, generations, problems)}};
  add_events(json, events, axis);
  json["environment"] = record.environment();
  add_environments(json, record);
  json["config"] = fs::exists(run / "config.toml") ? read_file(run / "config.toml") : "";
  json["problems"] = problems;
  return json;
}

std::string report_page(const Ordered& data) {
  std::string text = data.dump(-1, ' ', false, Ordered::error_handler_t::replace), safe;
  for (const char c : text) {
    if (c == '<') safe += "\\u003c";  // so that it cannot end the enclosing script
    else safe += c;
  }
  std::string page = kReportPage;
  const std::string mark = "@DATA@";
  return page.replace(page.find(mark), mark.size(), safe);
}

}  // namespace elinvar
