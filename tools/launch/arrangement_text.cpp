#include "tools/launch/arrangement_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

constexpr size_t kColumns = 100;

std::string plural(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

// "0-3, 8" for [[0, 4], [8, 9]]; what exceeds so many characters is left out.
std::string ranges_text(const Json& intervals, size_t most = kColumns) {
  std::string text;
  for (const Json& interval : intervals) {
    const int begin = interval.at(0), end = interval.at(1);
    const std::string range = end - begin == 1 ? std::to_string(begin) : fmt::format("{}-{}", begin, end - 1);
    if (text.size() + range.size() + 6 > most) return text + ", ..";
    text += (text.empty() ? "" : ", ") + range;
  }
  return text.empty() ? "-" : text;
}

// "embeddings and h.1 to head" for the names of some runs of segments; "" if names are not known.
std::string names_text(const Json& runs, const Json& names) {
  std::string text;
  for (const Json& run : runs) {
    const size_t first = run.at(0), last = run.at(1).get<size_t>() - 1;
    if (last >= names.size()) return "";
    text += (text.empty() ? "" : " and ") + names[first].get<std::string>();
    if (last > first) text += " to " + names[last].get<std::string>();
  }
  return text;
}

std::string memory_text(const Json& worker) {
  const double bytes = worker.value("resident_bytes", 0.0);
  return bytes > 0 ? fmt::format("{:.0f} MiB", bytes * 0x1p-20) : "-";
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

// A table of workers, with their virtual ranks or virtual shards if they may differ.
std::string worker_table(const std::vector<const Json*>& workers, const std::string& indent, bool ranks, bool shards) {
  std::string text = fmt::format("{}worker  {:<9}", indent, "state");
  if (ranks) text += fmt::format("  {:<20}", "virtual ranks");
  if (shards) text += fmt::format("  {:<14}", "virtual shards");
  text += fmt::format("  {:>7}  {:>11}", "part", "memory");
  const bool buckets = std::ranges::any_of(workers, [](const Json* w) { return w->value("buckets", 0) > 0; });
  text += buckets ? "  buckets kept\n" : "\n";
  for (const Json* w : workers) {
    text += fmt::format("{}{:>6}  {:<9}", indent, w->at("id").get<int>(), w->at("state").get<std::string>());
    if (ranks) text += fmt::format("  {:<20}", ranges_text(w->at("ranks"), 20));
    if (shards) text += fmt::format("  {:<14}", ranges_text(Json::array({w->at("virtual_shards")})));
    text += fmt::format("  {:>7}  {:>11}", percent(w->at("part").get<double>()), memory_text(*w));
    if (const int all = w->value("buckets", 0); all > 0) {
      const int kept = w->at("buckets_kept");
      text += fmt::format("  {} of {}, {:.0f} %", kept, all, 100.0 * kept / all);
    }
    text += "\n";
  }
  return text;
}

// The members of each stage of each model replica.
using Stages = std::map<int, std::vector<const Json*>>;
using Replicas = std::map<int, Stages>;

std::string stage_text(int number, const std::vector<const Json*>& members, const Json& names, bool shards) {
  const Json& segments = members.front()->at("segments");
  if (segments.empty()) return worker_table(members, "  ", /*ranks=*/false, shards);
  const bool one = segments.size() == 1 && segments[0].at(1).get<int>() - segments[0].at(0).get<int>() == 1;
  std::string text = fmt::format("  stage {}: segment{} {}", number, one ? "" : "s", ranges_text(segments, 40));
  const std::string called = names_text(segments, names),
                    work = fmt::format("; {} of a rank gradient", percent(members.front()->at("stage_work")));
  if (!called.empty() && text.size() + called.size() + work.size() + 3 <= kColumns) text += " (" + called + ")";
  return text + work + "\n" + worker_table(members, "    ", /*ranks=*/false, shards);
}

std::string replica_text(int number, const Stages& stages, const Json& names, bool shards) {
  const Json& member = *stages.begin()->second.front();
  double part = 0;
  for (const auto& [stage, members] : stages)
    for (const Json* w : members) part += w->at("part").get<double>();
  std::string text = fmt::format("\nmodel replica {}: virtual ranks {}; {} of a step\n", number,
                                 ranges_text(member.at("ranks"), 50), percent(part));
  for (const auto& [stage, members] : stages) text += stage_text(stage, members, names, shards);
  return text;
}

// "joining: worker 5 (learning), one of host a (joining)"
std::string movers_text(const char* what, const std::vector<const Json*>& workers) {
  if (workers.empty()) return "";
  std::string line = fmt::format("{}:", what), text;
  const char* separator = " ";
  for (const Json* w : workers) {
    const int id = w->at("id");
    const Json& about = w->at("about");
    const std::string name = about.value("name", ""),
                      who = id > 0 ? fmt::format("worker {}", id) : fmt::format("pid {}", about.value("pid", 0));
    const std::string next =
        fmt::format("{}{} ({}{}{})", separator, who, name, name.empty() ? "" : ", ", w->at("state").get<std::string>());
    separator = ", ";
    if (line.size() + next.size() + 1 > kColumns) {
      text += line + ",\n";
      line = "  " + next.substr(2);
    } else {
      line += next;
    }
  }
  return text + line + "\n";
}

// "8 virtual ranks on 2 model replicas of up to tp=2, pp=2", and a line about ZeRO.
std::string summary(const Json& status, size_t members, const Replicas& replicas) {
  const Json asked = status.value("arrangement", Json::object());
  std::string text = plural(status.at("virtual_ranks").get<int>(), "virtual rank") + " on ";
  text += replicas.empty() ? plural(static_cast<int64_t>(members), "worker") + " that " +
                                 (members == 1 ? "computes" : "compute") + " all of the network"
                           : plural(static_cast<int64_t>(replicas.size()), "model replica") + " of up to " +
                                 fmt::format("tp={}, pp={}", asked.value("tp", 1), asked.value("pp", 1));
  if (const int zero = asked.value("zero", 0); zero > 0) {
    const int copies = std::min(asked.value("copies", 1), static_cast<int>(members));
    text += fmt::format("\nzero={}: {} of the optimizer's state", zero,
                        copies == 1 ? "1 copy" : fmt::format("{} copies", copies));
  }
  if (status.value("automatic", false)) text += "\narrangement: chosen by the job (--arrangement auto)";
  return text + "\n";
}

}  // namespace

std::string arrangement_text(const Json& status) {
  check(status.contains("virtual_ranks"), "the job's program does not tell its arrangement: it is an older one");
  std::vector<const Json*> members, joining, leaving;
  Replicas replicas;
  for (const Json& w : status.at("workers")) {
    const std::string state = w.at("state");
    const bool takes_part = w.contains("part");
    if (takes_part) members.push_back(&w);
    if (state == "draining" || state == "leaving") leaving.push_back(&w);
    else if (!takes_part) joining.push_back(&w);
    if (takes_part && w.contains("replica")) replicas[w["replica"]][w.at("stage")].push_back(&w);
  }
  std::string text = fmt::format("{}: {}, step {} of {}, generation {}\n", status.value("run", ""),
                                 status.at("phase").get<std::string>(), status.at("step").get<int64_t>(),
                                 status.at("steps").get<int64_t>(), status.at("generation").get<int64_t>());
  if (members.empty()) text += "no worker takes part yet\n";
  else text += summary(status, members.size(), replicas);
  const bool shards = status.value("arrangement", Json::object()).value("tp", 1) > 1;
  for (const auto& [number, stages] : replicas)
    text += replica_text(number, stages, status.value("segments", Json()), shards);
  if (replicas.empty() && !members.empty()) text += "\n" + worker_table(members, "  ", /*ranks=*/true, false);
  const std::string movers = movers_text("joining", joining) + movers_text("leaving", leaving);
  return text + (movers.empty() ? "" : "\n" + movers);
}

}  // namespace elinvar
