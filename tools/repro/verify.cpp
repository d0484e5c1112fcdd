// `repro verify`: repeats steps of a run with the real trainer, from one of its checkpoints and with any workers, and
// compares every line of the ledger. The run is only read: all work happens in a temporary folder that gets its
// configuration, the checkpoint, and the ledger up to there.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "elastic/run/run_record.h"
#include "elastic/step/arrangement.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/threads.h"
#include "tools/cli/device_options.h"
#include "tools/cli/program_beside.h"
#include "tools/config/config.h"
#include "tools/repro/commands.h"
#include "tools/repro/comparison.h"
#include "tools/repro/output.h"
#include "tools/repro/subprocess.h"
#include "tools/training/progress.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

struct VerifyOptions {
  std::string run, keep, arrangement;
  std::optional<int64_t> from, steps;
  int workers = 1;
  CLI::Option* workers_given = nullptr;
  DeviceOptions device;
  bool json = false;
};

struct Verdict {
  bool equal = true;
  int64_t from = 0, to = 0;              // steps from + 1 to `to` were repeated
  int64_t step = 0;                      // the first step that differs; 0: none, or unknown
  std::vector<std::string> fields = {};  // ledger fields that differ in it
  std::string reason = {};               // why the answer is "no" without a step, or a possible reason
};

std::string steps_text(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

// Prints the progress of a ledger on the terminal until it is destroyed.
class HowFar {
 public:
  HowFar(const fs::path& ledger, int64_t from, int64_t to)
      : teller_(start_thread("teller", [=](const std::stop_token& over) {
          const auto began = std::chrono::steady_clock::now();
          std::ifstream file;
          int64_t step = -1;  // of the last line; the first line is the header
          for (std::mutex mutex; !over.stop_requested();) {
            if (!file.is_open()) file.open(ledger);
            file.clear();
            for (char byte = 0; file.get(byte);) step += byte == '\n';
            const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            const auto done = static_cast<double>(step - from), left = static_cast<double>(to - step);
            if (step > from)
              fmt::print(stderr, "\r\033[Kstep {}/{}, {} left", step, to, duration_text(seconds / done * left));
            std::unique_lock lock(mutex);
            std::condition_variable_any().wait_for(lock, over, std::chrono::milliseconds(500), [] { return false; });
          }
          fmt::print(stderr, "\r\033[K");
        })) {}

 private:
  std::jthread teller_;
};

// Copies the first `count` lines of a file if it exists.
void copy_lines(const fs::path& from, const fs::path& to, int64_t count) {
  if (!fs::exists(from)) return;
  std::vector<std::string> lines = whole_lines(read_file(from));
  lines.resize(std::min(lines.size(), static_cast<size_t>(count)));
  replace_file(to, lines.empty() ? "" : fmt::format("{}\n", fmt::join(lines, "\n")));
}

// Links files that are never written to; copies them if the folders are on different file systems.
void link_or_copy(const fs::path& from, const fs::path& to) {
  make_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    std::error_code elsewhere;
    fs::create_hard_link(entry.path(), to / entry.path().filename(), elsewhere);
    if (elsewhere) fs::copy_file(entry.path(), to / entry.path().filename());
  }
}

// Returns the newest checkpoint that has steps after it; 0: the beginning.
int64_t default_start(const RunRecord& run, int64_t last) {
  int64_t start = 0;
  for (const int64_t step : run.checkpoints())
    if (step < last) start = step;
  return start;
}

// Returns the contradicting line that the replay computed, if it ended with one (elastic/ledger/ledger.h).
std::optional<LedgerLine> contradiction_in(const fs::path& run) {
  if (!fs::exists(run / "result.json")) return std::nullopt;
  const OrderedJson result = parse_json(read_file(run / "result.json"));
  const std::string line = result.is_object() ? result.value("contradiction", "") : "";
  return line.empty() ? std::nullopt : std::optional(LedgerLine::parse(line));
}

void compare(const RunRecord& run, const LedgerLine& now, Verdict& verdict) {
  const auto then = run.lines().find(now.step);
  if (!verdict.equal || then == run.lines().end()) return;
  verdict.fields = differing_fields(then->second, now);
  if (verdict.fields.empty()) return;
  verdict.equal = false;
  verdict.step = now.step;
}

Verdict no(int64_t from, int64_t to, std::string reason) {
  return {.equal = false, .from = from, .to = to, .reason = std::move(reason)};
}

// Returns the number of workers that do the steps: all of an arrangement that names its model replicas, otherwise
// those of --workers, and by default those of one model replica.
int workers_for(const VerifyOptions& o) {
  Arrangement arrangement;
  const int dp = read_arrangement(o.arrangement, arrangement), workers = std::max(dp, 1) * arrangement.replica();
  if (o.workers_given->count() == 0) return workers;
  check(dp == 0 || o.workers == workers, "--arrangement {} has {} workers, but --workers is {}", o.arrangement, workers,
        o.workers);
  return o.workers;
}

Verdict verify(const VerifyOptions& o, Subprocess& subprocess) {
  const fs::path aside = subprocess.path() / "run";
  const int workers = workers_for(o);
  const RunRecord run(o.run);
  check(!run.lines().empty(), "the ledger of {} has no steps", o.run);
  const int64_t last = run.lines().rbegin()->first;
  const int64_t from = o.from.value_or(default_start(run, last));
  check(from < last, "--from {}: the ledger of {} ends at step {}", from, o.run, last);
  const int64_t to = from + std::min(last - from, o.steps.value_or(last - from));
  for (const Damage& damage : run.damage())
    if (!damage.cut_off && damage.file == "ledger.jsonl") return no(from, to, to_string(damage));

  const fs::path path(o.run);
  check(!run.header() || digest(read_run_config(path)) == run.header()->config,
        "config.toml of {} is not what its ledger was made with: it was changed since, or by another version of this "
        "program the run was made",
        o.run);
  if (from > 0) {
    const std::vector<int64_t>& there = run.checkpoints();
    check(std::find(there.begin(), there.end(), from) != there.end(),
          "--from {}: {} has no checkpoint of that step; it has {}, and 0 is the beginning", from, o.run,
          there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", ")));
    try {
      const Checkpoint checkpoint = run.checkpoint(from);
      const auto& line = run.lines().at(from);
      if (line.state && *line.state != checkpoint.digest)
        return no(from, to, fmt::format("the checkpoint of step {} is not the state that the ledger has", from));
    } catch (const Failure& damaged) {
      return no(from, to, damaged.what());
    }
    const std::string name = fmt::format("step-{}", from);
    link_or_copy(path / "checkpoints" / name, aside / "checkpoints" / name);
  }
  make_directories(aside);
  copy_lines(path / "ledger.jsonl", aside / "ledger.jsonl", from > 0 ? from + 1 : 0);
  if (fs::exists(path / "environment.json")) fs::copy_file(path / "environment.json", aside / "environment.json");
  replace_file(aside / "config.toml", to_toml(read_run_config(path)));

  std::vector<std::string> arguments = {
      "run",       aside / "config.toml",
      "--run-dir", aside,
      "--replay",  path,
      "--until",   std::to_string(to),
      "--workers", std::to_string(workers),
      "--device",  o.device.device,
      "--isa",     o.device.isa,
      "--threads", std::to_string(o.device.threads > 0 ? o.device.threads : std::max(1, usable_threads() / workers)),
      "--listen",  "ipc://" + (subprocess.path() / "socket").string()};
  if (from > 0) arguments.emplace_back("--resume");
  if (!o.arrangement.empty()) arguments.insert(arguments.end(), {"--arrangement", o.arrangement});
  fmt::print(stderr, "doing {} of {} again with {} worker{}\n", steps_text(from + 1, to), o.run, workers,
             workers == 1 ? "" : "s");
  std::optional<HowFar> how_far;
  if (isatty(STDERR_FILENO)) how_far.emplace(aside / "ledger.jsonl", from, to);
  const Subprocess::Ended ended = subprocess.run(program_beside("train"), arguments);
  how_far.reset();
  Verdict verdict{.from = from, .to = to};
  const std::optional<LedgerLine> contradiction = contradiction_in(aside);
  if (ended.code != 0 && !contradiction) {
    check(ended.code != 2, "{}", ended.last_words());
    fail("the trainer ended with exit code {}:\n{}", ended.code, ended.last_words());
  }
  const RunRecord again(aside);
  for (const auto& [step, line] : again.lines())
    if (step > from && step <= to) compare(run, line, verdict);
  if (contradiction && contradiction->step <= to) compare(run, *contradiction, verdict);
  const int64_t reached = again.lines().empty() ? 0 : again.lines().rbegin()->first;
  if (!verdict.equal) verdict.reason = other_kinds(run, again);
  if (verdict.equal && reached < to) fail("the trainer stopped after step {}:\n{}", reached, ended.last_words());
  return verdict;
}

int verify_command(const VerifyOptions& o) {
  check(o.keep.empty() || !fs::exists(o.keep), "--keep {}: there is something already", o.keep);
  Subprocess subprocess;
  const Verdict v = verify(o, subprocess);
  if (!o.keep.empty() && fs::exists(subprocess.path() / "run"))
    fs::copy(subprocess.path() / "run", o.keep, fs::copy_options::recursive);
  if (o.json) {
    OrderedJson json = {{"equal", v.equal}, {"from", v.from}, {"to", v.to}};
    if (v.step > 0) json.update({{"step", v.step}, {"fields", v.fields}});
    if (!v.reason.empty()) json["reason"] = v.reason;
    print_json(json);
  } else if (v.equal) {
    fmt::print("{} done again: every line of the ledger is the same\n", steps_text(v.from + 1, v.to));
  } else if (v.step > 0) {
    fmt::print("step {} differs from the ledger in: {}{}\n", v.step, fmt::join(v.fields, ", "),
               v.step == v.from + 1 ? "" : fmt::format("; the same: {}", steps_text(v.from + 1, v.step - 1)));
    if (!v.reason.empty()) fmt::print("{}\n", v.reason);
  } else {
    fmt::print("{}\n", v.reason);
  }
  return v.equal ? 0 : 1;
}

}  // namespace

Command add_verify(CLI::App& repro) {
  const auto o = std::make_shared<VerifyOptions>();
  CLI::App* app = repro.add_subcommand("verify", "do steps of a run again and compare them with its ledger");
  app->add_option("RUN", o->run, "a run directory")->required();
  app->add_option("--from", o->from, "the checkpoint to begin with, or 0 (default: the newest with steps after it)")
      ->check(CLI::NonNegativeNumber);
  app->add_option("--steps", o->steps, "how many steps (default: to the end of the ledger)")
      ->check(CLI::PositiveNumber);
  o->workers_given =
      app->add_option("--workers", o->workers, "worker processes to do it with (default: those of --arrangement, or 1)")
          ->check(CLI::Range(1, 1024).description(""));
  app->add_option("--arrangement", o->arrangement,
                  "how these divide state and work, as in train run: dp=2,tp=2,zero=1; it changes no bit");
  app->add_option("--keep", o->keep, "where to leave the run that was made for it");
  o->device.add_to(*app);
  app->add_flag("--json", o->json, "the result as JSON");
  return {app, [o] { return verify_command(*o); }};
}

}  // namespace elinvar
