#include "tools/pool/hosts/slurm.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <sstream>

#include "tensor/base/check.h"
#include "tools/pool/hosts/process.h"

namespace elinvar::pool {
namespace {

constexpr double kCommandSeconds = 5;  // the longest time that a command may take
constexpr double kAskEvery = 1;        // seconds between two queries
constexpr double kRest = 10;           // seconds before a Slurm that did not answer is queried again
constexpr double kMostWait = 10;  // seconds for an allocation on an idle node; after that another user has the node

std::vector<std::vector<std::string>> fields_of(const std::string& text, size_t count) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream parts(line);
    for (std::string field; std::getline(parts, field, '|');) fields.push_back(field);
    if (fields.size() == count) rows.push_back(fields);
  }
  return rows;
}

// Counts the GPUs of a node: "gpu:a100:4(S:0-1),gpu:v100:2,shard:8" gives 6, "(null)" gives 0.
int gpus_in(const std::string& gres) {
  int gpus = 0;
  std::istringstream parts(gres);
  for (std::string part; std::getline(parts, part, ',');) {
    if (!part.starts_with("gpu:")) continue;
    part.resize(std::min(part.size(), part.find('(')));
    gpus += std::clamp(std::atoi(part.c_str() + part.rfind(':') + 1), 0, 1024);
  }
  return gpus;
}

// Parses "2026-05-04T10:11:12", in local time; "NOT_SET" and the like mean never.
double time_of(const std::string& text) {
  std::tm local{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &local) == nullptr) return kNever;
  local.tm_isdst = -1;
  return static_cast<double>(std::mktime(&local));
}

}  // namespace

SlurmSource::SlurmSource(const SourceOptions& options, const std::string& program)
    : options_(options), program_(options.program.empty() ? program : options.program) {
  check(!options.partition.empty(), "[{}] source = \"slurm\" needs a partition whose jobs may be preempted",
        options.name);
  check(options.minutes >= 1, "[{}] minutes must be at least 1, got {}", options.name, options.minutes);
  for (const std::string* word : {&options.partition, &options.job_name})
    check(word->find_first_of("-| \t\n") != 0, "[{}] '{}' is no name", options.name, *word);
}

std::string SlurmSource::path_of(const std::string& command) const {
  return options_.commands.empty() ? command : options_.commands + "/" + command;
}

std::string SlurmSource::ask(const std::string& command, std::vector<std::string> words) const {
  words.insert(words.begin(), path_of(command));
  const ProgramOutput told = run_program(words, kCommandSeconds);
  if (told.code != 0)
    fail("{} {}: {}", command, told.code < 0 ? "does not answer" : fmt::format("fails with {}", told.code),
         told.err.substr(0, 300));
  return told.out;
}

std::vector<SlurmSource::Node> SlurmSource::parse_nodes(const std::string& sinfo) {
  std::vector<Node> nodes;
  for (const auto& row : fields_of(sinfo, 4))
    nodes.push_back({row[0], row[1], std::max(1, std::atoi(row[2].c_str())), gpus_in(row[3])});
  return nodes;
}

std::vector<SlurmSource::Allocation> SlurmSource::parse_allocations(const std::string& squeue) {
  std::vector<Allocation> all;
  for (const auto& row : fields_of(squeue, 4)) all.push_back({row[0], row[1], row[2], time_of(row[3])});
  return all;
}

std::vector<Machine> SlurmSource::machines(double now, int wanted) {
  if (now < asked_at_) asked_at_ = quiet_until_ = 0;  // the clock was set back
  if (now - asked_at_ < kAskEvery) return last_;
  if (now < quiet_until_) fail("Slurm did not answer; it is asked again in a while");
  std::vector<Allocation> allocations;
  std::vector<Node> nodes;
  try {
    allocations = parse_allocations(
        ask("squeue", {"--noheader", "--me", "--name", options_.job_name, "--format", "%i|%T|%N|%e"}));
    nodes = parse_nodes(
        ask("sinfo", {"--noheader", "--Node", "--partition", options_.partition, "--format", "%N|%t|%c|%G"}));
  } catch (const Failure&) {
    quiet_until_ = now + kRest;
    throw;
  }
  for (const Node& node : nodes) nodes_[node.name] = node;
  std::vector<Machine> machines;
  std::map<std::string, Pending> pending;
  int more = wanted;
  for (const Allocation& a : allocations) {
    if (a.state == "RUNNING") machines.push_back(machine_of(a, nodes_[a.node]));
    if (a.state != "PENDING") continue;
    Pending& waits = pending[a.id] = pending_.contains(a.id) ? pending_[a.id] : Pending{.since = now};
    waits.since = std::min(waits.since, now);
    more -= waits.slots;
    if (now - waits.since > kMostWait) ask("scancel", {a.id});
  }
  pending_ = pending;
  int room = options_.most > 0 ? options_.most - static_cast<int>(machines.size() + pending.size()) : 1 << 20;
  for (const Node& node : nodes) {
    if (more <= 0 || room <= 0) break;
    if (node.state != "idle" || slots_of(node) == 0) continue;
    harvest(node, now);
    more -= slots_of(node);
    --room;
  }
  asked_at_ = now;
  return last_ = machines;
}

// Returns 0 if the node has too few GPUs.
int SlurmSource::slots_of(const Node& node) const {
  if (options_.device == "cpu") return std::max(1, options_.slots);
  if (options_.slots == 0) return node.gpus;
  return node.gpus >= options_.slots ? options_.slots : 0;
}

// Requests an empty allocation; workers are started in it later.
void SlurmSource::harvest(const Node& node, double now) {
  std::vector<std::string> words = {"--parsable",
                                    "--partition",
                                    options_.partition,
                                    "--nodes",
                                    "1",
                                    "--nodelist",
                                    node.name,
                                    "--exclusive",
                                    "--no-requeue",
                                    "--job-name",
                                    options_.job_name,
                                    "--time",
                                    std::to_string(options_.minutes),
                                    "--output",
                                    "/dev/null",
                                    "--chdir",
                                    "/"};
  if (options_.device != "cpu") words.push_back(fmt::format("--gres=gpu:{}", slots_of(node)));
  words.insert(words.end(), {"--wrap", "exec sleep infinity"});
  const std::string id = ask("sbatch", words);
  pending_[id.substr(0, id.find_first_of(";\n"))] = {now, slots_of(node)};
}

Machine SlurmSource::machine_of(const Allocation& allocation, const Node& node) const {
  const int slots = slots_of(node);
  const int threads = options_.threads > 0 ? options_.threads : std::max(1, node.cpus / std::max(1, slots));
  return {.host = allocation.node,
          .lease = allocation.id,
          .kind = !options_.kind.empty()     ? options_.kind
                  : options_.device == "cpu" ? "cpu-" + std::to_string(threads)
                                             : options_.device,
          .device = options_.device,
          .slots = slots,
          .threads = threads,
          .until = allocation.until};
}

std::vector<std::string> SlurmSource::command(const Machine& machine, std::vector<std::string> words) const {
  words.at(0) = program_;
  std::vector<std::string> all = {path_of("srun"),
                                  "--jobid",
                                  machine.lease,
                                  "--nodes",
                                  "1",
                                  "--ntasks",
                                  "1",
                                  "--overlap",
                                  "--cpus-per-task",
                                  std::to_string(machine.threads),
                                  "--unbuffered",
                                  "--kill-on-bad-exit=0",
                                  "--chdir",
                                  "/"};
  // Each worker sees all GPUs of the allocation; --device selects its own.
  if (machine.device != "cpu") all.push_back(fmt::format("--gres=gpu:{}", machine.slots));
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

void SlurmSource::want_nothing() {
  for (const auto& [id, waits] : pending_) (void)run_program({path_of("scancel"), id}, kCommandSeconds);
}

bool SlurmSource::release(const Machine& machine) {
  (void)run_program({path_of("scancel"), machine.lease}, kCommandSeconds);
  return true;
}

}  // namespace elinvar::pool
