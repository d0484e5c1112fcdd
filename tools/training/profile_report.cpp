#include "tools/training/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kOpsShown = 25;

double ms(double microseconds) { return microseconds / 1e3; }

// The workers' files, ascending by worker.
std::vector<fs::path> files_in(const fs::path& run_directory) {
  std::map<int, fs::path> files;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_directory / "profile", none)) {
    int worker = 0;
    const std::string name = entry.path().filename();
    if (std::sscanf(name.c_str(), "worker-%d.json", &worker) == 1 && name.ends_with(".json"))
      files.emplace(worker, entry.path());
  }
  std::vector<fs::path> paths;
  for (const auto& [worker, path] : files) paths.push_back(path);
  return paths;
}

struct Tally {
  double time = 0, gflop = 0, mbyte = 0;
  double peak_gflop = 0;  // operations in the products' time at peak speed
  int64_t calls = 0;
};

// Sums over the events of a trace.
struct Sums {
  std::map<std::string, Tally> activities;  // time of each activity, without the activities nested in it
  std::map<std::pair<std::string, std::string>, Tally> ops;  // by activity and name of the op
  std::map<std::string, Tally> threads;                      // busy time of each thread except the one that computes
  std::set<int64_t> steps;
  Tally step;  // the whole step
  double ops_time = 0;
};

struct Open {
  double end;
  std::string activity;  // empty: an op
};

// Adds the events of one thread, which are nested and in order.
void add_thread(const std::vector<const OrderedJson*>& events, bool computes, const std::string& thread, double peak,
                Sums& sums) {
  std::vector<Open> open;
  for (const OrderedJson* event : events) {
    const double begin = event->at("ts"), time = event->at("dur");
    const std::string name = event->at("name"), category = event->at("cat");
    while (!open.empty() && open.back().end <= begin) open.pop_back();
    if (!computes) {
      if (open.empty() && category != "wait") sums.threads[thread].time += time;
      open.push_back({begin + time, name});
      continue;
    }
    const std::string around = open.empty() ? "" : open.back().activity;
    if (category == "step") {
      sums.steps.insert(event->at("args").at("step").get<int64_t>());
      sums.step.time += time;
      ++sums.step.calls;
      sums.activities["other"].time += time;
      open.push_back({begin + time, "other"});
    } else if (category == "op") {
      Tally& tally = sums.ops[{name, around}];
      const OrderedJson args = event->value("args", OrderedJson::object());
      const double gflop = args.value("gflop", 0.0);
      tally.time += time;
      tally.gflop += gflop;
      tally.mbyte += args.value("mbyte", 0.0);
      if (gflop > 0) tally.peak_gflop += peak * time / 1e6;
      ++tally.calls;
      sums.ops_time += time;
    } else {
      sums.activities[name].time += time;
      if (!open.empty()) sums.activities[around].time -= time;
      open.push_back({begin + time, name});
    }
  }
}

Sums sums_of(const OrderedJson& trace) {
  std::map<int, double> peaks;
  for (const OrderedJson& worker : trace.at("otherData").at("workers"))
    peaks[worker.at("worker").get<int>()] = worker.at("peak_gflop_per_s").get<double>();
  std::map<std::pair<int, int>, std::vector<const OrderedJson*>> threads;
  std::map<std::pair<int, int>, std::string> names;
  for (const OrderedJson& event : trace.at("traceEvents")) {
    const std::pair<int, int> thread = {event.at("pid").get<int>(), event.at("tid").get<int>()};
    if (event.at("ph") == "X") threads[thread].push_back(&event);
    else if (event.at("name") == "thread_name") names[thread] = event.at("args").at("name").get<std::string>();
  }
  Sums sums;
  for (const auto& [thread, events] : threads)
    add_thread(events, names[thread] == "loop", names[thread], peaks[thread.first], sums);
  return sums;
}

std::string rate(double amount, double seconds, const char* unit = "") {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}{}", amount / seconds, unit) : "-";
}

template <class Key>
std::vector<std::pair<Key, Tally>> by_time(const std::map<Key, Tally>& all) {
  std::vector<std::pair<Key, Tally>> sorted(all.begin(), all.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.time > b.second.time; });
  return sorted;
}

}  // namespace

fs::path profile_path(const fs::path& run_directory, int worker) {
  make_directories(run_directory / "profile");
  return run_directory / "profile" / fmt::format("worker-{}.json", worker);
}

void write_profile(const fs::path& path, const OrderedJson& trace) {
  std::string text = "{\n";
  for (const auto& [key, value] : trace.items())
    if (key != "traceEvents") text += fmt::format("\"{}\": {},\n", key, value.dump());
  text += "\"traceEvents\": [";
  const char* separator = "\n";
  for (const OrderedJson& event : trace.at("traceEvents")) {
    text += separator + event.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    separator = ",\n";
  }
  replace_file(path, text + "\n]}\n");
}

void forget_profiles(const fs::path& run_directory) {
  remove_tree(run_directory / "profile");
  fs::remove(run_directory / "profile.json");
}

std::string where_to_open(const fs::path& trace) {
  return fmt::format("the trace is {}; open it in https://ui.perfetto.dev or chrome://tracing", trace.string());
}

OrderedJson joined_profile(const fs::path& run_directory) {
  std::vector<OrderedJson> traces;
  int64_t began = INT64_MAX;
  for (const fs::path& path : files_in(run_directory)) {
    OrderedJson trace = parse_json<OrderedJson>(read_file(path));
    try {
      began = std::min(began, trace.at("otherData").at("workers").at(0).at("began_unix_ns").get<int64_t>());
      if (!trace.at("traceEvents").is_array()) fail("its events are no list");
    } catch (const std::exception& wrong) {
      fail("{} is no profile: {}", path.string(), wrong.what());
    }
    traces.push_back(std::move(trace));
  }
  if (traces.empty()) return nullptr;
  OrderedJson joined = {{"displayTimeUnit", "ms"},
                        {"otherData", {{"workers", OrderedJson::array()}}},
                        {"traceEvents", OrderedJson::array()}};
  for (OrderedJson& trace : traces) {
    OrderedJson& worker = trace["otherData"]["workers"][0];
    const double later = static_cast<double>(worker["began_unix_ns"].get<int64_t>() - began) / 1e3;
    joined["otherData"]["workers"].push_back(worker);
    for (OrderedJson& event : trace["traceEvents"]) {
      if (event.contains("ts")) event["ts"] = event["ts"].get<double>() + later;
      joined["traceEvents"].push_back(std::move(event));
    }
  }
  return joined;
}

std::string profile_table(const OrderedJson& trace) {
  const Sums sums = sums_of(trace);
  const OrderedJson& workers = trace.at("otherData").at("workers");
  if (sums.step.calls == 0) return "profile: no step was seen\n";
  const auto steps = static_cast<double>(sums.step.calls);
  const auto per_step = [&](double microseconds) { return ms(microseconds) / steps; };
  const auto share = [&](double microseconds) { return 100.0 * microseconds / sums.step.time; };
  const OrderedJson& first = workers.at(0);
  std::string text =
      fmt::format("profile of steps {} to {}: {} worker{} of {} thread{}, {}, {}; a step takes {:.1f} ms",
                  *sums.steps.begin(), *sums.steps.rbegin(), workers.size(), workers.size() == 1 ? "" : "s",
                  first.at("threads").get<int>(), first.at("threads") == 1 ? "" : "s",
                  first.at("device").get<std::string>(), first.at("isa").get<std::string>(), per_step(sums.step.time));
  if (const double peak = first.at("peak_gflop_per_s"); peak > 0)
    text += fmt::format("; at most {:.1f} GFLOP/s of fused multiply-adds", peak);
  text += fmt::format("\n\n{:<46} {:>9} {:>7}\n", "activity", "ms/step", "share");
  for (const auto& [name, tally] : by_time(sums.activities))
    text += fmt::format("{:<46} {:>9.2f} {:>5.1f} %\n", name, per_step(tally.time), share(tally.time));

  text += fmt::format("\n{:<28} {:<17} {:>9} {:>7} {:>8} {:>8} {:>6} {:>7}\n", "op", "in", "ms/step", "share", "calls",
                      "GFLOP/s", "peak", "GB/s");
  const auto row = [&](const std::string& name, const std::string& in, const Tally& t) {
    const double seconds = t.time / 1e6;
    text += fmt::format("{:<28} {:<17} {:>9.2f} {:>5.1f} % {:>8.1f} {:>8} {:>6} {:>7}\n", name, in, per_step(t.time),
                        share(t.time), static_cast<double>(t.calls) / steps, rate(t.gflop, seconds),
                        t.peak_gflop > 0 ? fmt::format("{:.0f} %", 100.0 * t.gflop / t.peak_gflop) : "-",
                        rate(t.mbyte / 1e3, seconds));
  };
  Tally rest;
  size_t shown = 0;
  for (const auto& [key, tally] : by_time(sums.ops)) {
    if (shown++ < kOpsShown) {
      row(key.first, key.second, tally);
      continue;
    }
    rest.time += tally.time, rest.calls += tally.calls;
    rest.gflop += tally.gflop, rest.peak_gflop += tally.peak_gflop, rest.mbyte += tally.mbyte;
  }
  if (rest.calls > 0) row(fmt::format("{} others", sums.ops.size() - kOpsShown), "", rest);
  text += fmt::format("{:<46} {:>9.2f} {:>5.1f} %\n", "no op", per_step(sums.step.time - sums.ops_time),
                      share(sums.step.time - sums.ops_time));

  if (!sums.threads.empty()) text += "\nother threads are busy:";
  for (const auto& [name, tally] : by_time(sums.threads)) text += fmt::format(" {} {:.1f} %", name, share(tally.time));
  if (!sums.threads.empty()) text += "\n";
  int64_t lost = 0;
  for (const OrderedJson& worker : workers) lost += worker.at("events_left_out").get<int64_t>();
  if (lost > 0) text += fmt::format("{} events more were too many: profile fewer steps\n", lost);
  return text;
}

}  // namespace elinvar
