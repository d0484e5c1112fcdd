#include "tools/pool/page/view.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/pool/profiling/prediction_error.h"
#include "tools/pool/profiling/rescale_costs.h"
#include "tools/training/progress.h"

namespace elinvar::pool {

using OrderedJson = nlohmann::ordered_json;
using State = JobRecord::State;

namespace {

constexpr int64_t kLogShown = 500, kLogOfJob = 12;
constexpr size_t kJobsShown = 500;
constexpr int64_t kPointsShown = 400;  // progress points per job

OrderedJson time_or_null(double time) {
  return time > 0 && std::isfinite(time) ? OrderedJson(time) : OrderedJson(nullptr);
}

std::string clock_text(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%m-%d %H:%M:%S", &local);
  return text;
}

double rate_of(const std::vector<Measurement>& measured) { return measured.empty() ? 0 : measured.back().rate; }

OrderedJson row_of(const JobRecord& j, int workers, double rate) {
  const auto batch = static_cast<double>(j.batch);
  const double left = work_of_all(j.steps, batch, j.validations) - work_for(j.step, batch, j.validations);
  return {{"id", j.id},
          {"name", j.name},
          {"state", name_of(j.state)},
          {"reason", j.reason},
          {"workers", workers},
          {"min", j.min_workers},
          {"max", j.max_workers},
          {"priority", j.priority},
          {"kinds", j.kinds},
          {"step", j.step},
          {"steps", j.steps},
          {"batch", j.batch},
          {"rate", rate},
          {"seconds_left",
           workers > 0 && rate > 0 && j.steps > 0 ? OrderedJson(left / rate + j.costs.finish) : OrderedJson(nullptr)},
          {"submitted", j.submitted},
          {"since", j.since},
          {"ended", time_or_null(j.ended)},
          {"deadline", time_or_null(j.deadline)},
          {"failures", j.failures},
          {"width", j.shape.width},
          {"recompute", j.shape.recompute},
          {"digest", j.digest}};
}

std::string cell(const std::string& text, size_t width) {
  return text.size() <= width ? text + std::string(width - text.size(), ' ') : text.substr(0, width - 1) + "~";
}

}  // namespace

OrderedJson log_view(const std::vector<LogLine>& lines) {
  OrderedJson all = OrderedJson::array();
  for (const LogLine& line : lines)
    all.push_back({{"id", line.id},
                   {"time", line.time},
                   {"job", line.job == 0 ? OrderedJson(nullptr) : OrderedJson(line.job)},
                   {"what", line.what},
                   {"where", line.where},
                   {"reason", line.reason}});
  return all;
}

OrderedJson pool_view(const Store& store, double now, double window) {
  const double since = now - window;
  std::map<Id, int> workers;
  std::map<Id, const ProcessRecord*> on_slot;
  const std::vector<ProcessRecord> processes = store.processes.all();
  OrderedJson spans = OrderedJson::array();
  for (const ProcessRecord& p : processes) {
    if (p.coordinator || (p.ended > 0 && p.ended < since)) continue;
    if (p.ended == 0) {
      ++workers[p.job];
      for (const Id slot : p.slots) on_slot[slot] = &p;
    }
    spans.push_back({{"job", p.job},
                     {"slots", p.slots},
                     {"from", p.started},
                     {"to", time_or_null(p.ended)},
                     {"leaving", time_or_null(p.leaving)},
                     {"code", p.ended > 0 ? OrderedJson(p.code) : OrderedJson(nullptr)}});
  }
  OrderedJson view = {{"time", now}, {"window", window}, {"daemon", daemon_runs(store.directory())}};
  OrderedJson jobs = OrderedJson::array();
  std::vector<JobRecord> records = store.jobs.all();
  std::erase_if(records, [&](const JobRecord& j) { return j.over() && j.ended < since; });
  if (records.size() > kJobsShown) records.erase(records.begin(), records.end() - kJobsShown);
  for (const JobRecord& j : records) jobs.push_back(row_of(j, workers[j.id], rate_of(store.measurements.of(j.id))));
  view["jobs"] = jobs;
  OrderedJson slots = OrderedJson::array();
  for (const SlotRecord& s : store.slots.all()) {
    if (s.gone > 0 && s.gone < since) continue;
    const auto there = on_slot.find(s.id);
    slots.push_back({{"id", s.id},
                     {"source", s.source},
                     {"host", s.host},
                     {"lease", s.lease},
                     {"kind", s.kind},
                     {"threads", s.threads},
                     {"since", s.since},
                     {"gone", time_or_null(s.gone)},
                     {"job", there == on_slot.end() ? OrderedJson(nullptr) : OrderedJson(there->second->job)}});
  }
  view["slots"] = slots;
  view["workers"] = spans;
  OrderedJson progress = OrderedJson::object();
  const std::vector<ProgressRecord> points = store.progress.since(since);
  std::map<Id, int64_t> count, seen;
  for (const ProgressRecord& p : points) ++count[p.job];
  for (const ProgressRecord& p : points)
    if (seen[p.job]++ % (count[p.job] / kPointsShown + 1) == 0)
      progress[std::to_string(p.job)].push_back({p.time, p.step});
  view["progress"] = progress;
  view["prediction_errors"] = json_of(prediction_errors(store.measurements.all()));
  view["log"] = log_view(store.log.last(0, kLogShown));
  return view;
}

OrderedJson job_view(const Store& store, const JobRecord& job, double now) {
  std::map<Id, SlotRecord> slots;
  for (const SlotRecord& s : store.slots.all()) slots[s.id] = s;
  OrderedJson workers = OrderedJson::array();
  for (const ProcessRecord& p : store.processes.present()) {
    if (p.job != job.id || p.coordinator) continue;
    const SlotRecord& s = slots[p.slots.front()];
    workers.push_back({{"name", p.name()},
                       {"host", s.host},
                       {"kind", s.kind},
                       {"state", p.leaving > 0  ? "leaving"
                                 : p.registered ? "working"
                                                : "starting"},
                       {"since", p.started}});
  }
  const std::vector<Measurement> measured = store.measurements.of(job.id);
  OrderedJson view = row_of(job, static_cast<int>(workers.size()), rate_of(measured));
  view["directory"] = (store.job_directory(job.id) / "run").string();
  view["here"] = workers;
  OrderedJson speeds = OrderedJson::array();
  for (const Measurement& m : measured)
    speeds.push_back({{"workers", m.workers},
                      {"width", m.shape.width},
                      {"recompute", m.shape.recompute},
                      {"seconds", m.seconds},
                      {"rate", m.rate},
                      {"predicted", m.predicted > 0 ? OrderedJson(m.predicted) : OrderedJson(nullptr)},
                      {"trial", m.trial}});
  view["measured"] = speeds;
  view["costs"] = text_of(job.costs);
  view["prediction_errors"] = json_of(prediction_errors({&measured, 1}));
  view["log"] = log_view(store.log.last(job.id, kLogOfJob));
  view["time"] = now;
  return view;
}

std::string jobs_table(const OrderedJson& view) {
  std::string text;
  if (!view.at("daemon").get<bool>()) text += "no daemon serves this pool; start one with `pool serve`\n";
  text += fmt::format("{:>4}  {} {} {:>8}  {:>16}  {:>9}  {:>8}  {}\n", "job", cell("name", 20), cell("state", 9),
                      "workers", "step", "samples/s", "left", "why");
  for (const OrderedJson& j : view.at("jobs")) {
    const bool running = j.at("workers").get<int>() > 0;
    text += fmt::format(
        "{:>4}  {} {} {:>8}  {:>16}  {:>9}  {:>8}  {}\n", j.at("id").get<Id>(),
        cell(j.at("name").get<std::string>(), 20), cell(j.at("state").get<std::string>(), 9),
        fmt::format("{} ({}-{})", j.at("workers").get<int>(), j.at("min").get<int>(), j.at("max").get<int>()),
        fmt::format("{}/{}", j.at("step").get<int64_t>(),
                    j.at("steps").get<int64_t>() > 0 ? std::to_string(j.at("steps").get<int64_t>()) : "?"),
        running && j.at("rate").get<double>() > 0 ? fmt::format("{:.4g}", j.at("rate").get<double>()) : "",
        j.at("seconds_left").is_number() ? duration_text(j.at("seconds_left").get<double>()) : "",
        j.at("reason").get<std::string>());
  }
  int there = 0, used = 0;
  for (const OrderedJson& s : view.at("slots"))
    if (s.at("gone").is_null()) {
      ++there;
      used += !s.at("job").is_null();
    }
  return text + fmt::format("{} slots, {} in use\n", there, used);
}

std::string log_text(const OrderedJson& lines) {
  std::string text;
  for (const OrderedJson& line : lines)
    text += fmt::format("{}  {:>6}  {} {}{}\n", clock_text(line.at("time").get<double>()),
                        line.at("job").is_null() ? "" : "job " + std::to_string(line.at("job").get<Id>()),
                        cell(line.at("what").get<std::string>(), 9),
                        line.at("where").get<std::string>().empty() ? "" : line["where"].get<std::string>() + ": ",
                        line.at("reason").get<std::string>());
  return text;
}

std::string job_text(const OrderedJson& j) {
  std::string text = fmt::format(
      "job {}, {}: {}{}\n", j.at("id").get<Id>(), j.at("name").get<std::string>(), j.at("state").get<std::string>(),
      j.at("reason").get<std::string>().empty() ? "" : ", " + j["reason"].get<std::string>());
  text += fmt::format("step {} of {}, {} to {} workers, priority {}\n", j.at("step").get<int64_t>(),
                      j.at("steps").get<int64_t>(), j.at("min").get<int>(), j.at("max").get<int>(),
                      j.at("priority").get<int>());
  if (!j.at("digest").get<std::string>().empty()) text += fmt::format("digest {}\n", j["digest"].get<std::string>());
  text += fmt::format("in {}\n", j.at("directory").get<std::string>());
  for (const OrderedJson& w : j.at("here"))
    text +=
        fmt::format("  worker {}: {} on {} ({})\n", w.at("name").get<std::string>(), w.at("state").get<std::string>(),
                    w.at("host").get<std::string>(), w.at("kind").get<std::string>());
  for (const OrderedJson& m : j.at("measured")) {
    std::string allocation = text_of(m.at("workers").get<Allocation>());
    if (const int width = m.at("width").get<int>(); width > 1) allocation += fmt::format(", {} slots each", width);
    if (m.at("recompute").get<bool>()) allocation += ", with recomputation";
    text +=
        m.at("rate").get<double>() > 0
            ? fmt::format(
                  "  {}: {:.4g} samples/s over {}{}{}\n", allocation, m["rate"].get<double>(),
                  duration_text(m.at("seconds").get<double>()),
                  m.at("predicted").is_null() ? "" : fmt::format(", {:.4g} predicted", m["predicted"].get<double>()),
                  m.at("trial").get<bool>() ? ", a trial" : "")
            : fmt::format("  {}: too little memory\n", allocation);
  }
  if (const std::string costs = j.at("costs").get<std::string>(); !costs.empty()) text += "  " + costs + "\n";
  return text + log_text(j.at("log"));
}

}  // namespace elinvar::pool
