#include "tests/torture/faults.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/cli/program_beside.h"

namespace elinvar::test {

namespace fs = std::filesystem;

namespace {

struct Call {
  const char* name;
  std::vector<int> errors;  // 0: the call processes a part of the bytes
};
// Errors that storage may return; calls that read and write are also interrupted.
const std::vector<Call>& storage_calls() {
  static const std::vector<Call> calls = {{"open", {ENOSPC, EMFILE, EACCES, EIO, EINTR, EROFS}},
                                          {"write", {ENOSPC, EIO, EINTR, EDQUOT, 0, 0}},
                                          {"sync", {EIO, ENOSPC, EDQUOT}},
                                          {"rename", {ENOSPC, EACCES, EIO, EROFS}},
                                          {"link", {EMLINK, ENOSPC, EPERM, EIO}},
                                          {"unlink", {EACCES, EIO, EBUSY, EROFS}},
                                          {"mkdir", {ENOSPC, EACCES, EROFS, EMLINK}},
                                          {"truncate", {EIO, EACCES}},
                                          {"map", {ENOMEM, ENODEV}},
                                          {"read", {EIO, EINTR, 0, 0}},
                                          {"look", {EACCES, EIO, ENOMEM}},
                                          {"lock", {ENOLCK, EINTR}}};
  return calls;
}

constexpr int kMostRules = 8, kBytesARule = 64;

fs::path library() { return program_beside("libfailing_storage.so"); }

// Returns the calls and failures of rule i.
std::pair<int64_t, int64_t> counts(const std::string& file, int i) {
  const std::string bytes = read_file(file);
  int64_t numbers[2];
  std::memcpy(numbers, bytes.data() + i * kBytesARule, sizeof numbers);
  return {numbers[0], numbers[1]};
}

}  // namespace

bool Torture::can_preload() { return fs::exists(library()); }

void Torture::preload(Launch& launch) const {
  replace_file(counts_file(), std::string(kMostRules * kBytesARule, '\0'));
  launch.environment.push_back("LD_PRELOAD=" + library().string());
  launch.environment.push_back("ELINVAR_FAILING_COUNTS=" + counts_file());
}

void Torture::add_failing(Launch& launch, const std::string& rule) {
  tell(rule);
  for (std::string& word : launch.environment)
    if (word.starts_with("ELINVAR_FAILING=")) {
      word += ";" + rule;
      return;
    }
  preload(launch);
  launch.environment.push_back("ELINVAR_FAILING=" + rule);
}

int64_t Torture::failures_counted() const {
  if (!fs::exists(counts_file())) return 0;
  int64_t all = 0;
  for (int i = 0; i < kMostRules; ++i) all += counts(counts_file(), i).second;
  return all;
}

// Counts the calls of each kind, so that each of them can be made to fail.
void Torture::count_calls() {
  if (!calls_.empty()) return;
  const std::vector<Call>& calls = storage_calls();
  for (size_t at = 0; at < calls.size(); at += kMostRules) {
    Launch launch{.options = {"--workers", "2"}};
    preload(launch);
    std::string rules;
    for (size_t i = at; i < std::min(calls.size(), at + kMostRules); ++i)
      rules +=
          fmt::format("{}call={},error=0,under={}", i > at ? ";" : "", calls[i].name, run("counted").string() + "/");
    launch.environment.push_back("ELINVAR_FAILING=" + rules);
    EXPECT_EQ(live("counted", launch, {}, {}), "");
    for (size_t i = at; i < std::min(calls.size(), at + kMostRules); ++i)
      calls_[calls[i].name] = std::max<int64_t>(1, counts(counts_file(), static_cast<int>(i - at)).first);
    forget("counted");
  }
}

std::string Torture::rule_of(Dice& dice) {
  count_calls();
  const Call call = dice.pick(storage_calls());
  const int error = dice.pick(call.errors);
  std::string rule = fmt::format("call={},{},under={}", call.name,
                                 error == 0 ? "short=1" : fmt::format("error={}", error), run(name_).string() + "/");
  int64_t most = calls_.at(call.name);
  if (dice.chance(0.3)) {
    const std::string part = dice.pick<std::string>({"checkpoints", "ledger", "digests", "events", "metrics",
                                                     "generations", "coordinators", "beat", "lock", ".json"});
    rule += ",name=" + part;
    most = most / 5 + 1;
  }
  if (dice.chance(0.4)) rule += ",only=" + dice.pick<std::string>({"run", "run", "join"});
  rule += fmt::format(",from={}", dice.between(1, most));
  const int64_t span = error == EINTR ? 0 : dice.number(10);  // an interruption must not last for ever
  if (span < 5) rule += ",count=1";
  else if (span < 6) rule += fmt::format(",count={}", dice.between(2, 20));
  else if (span < 8) rule += fmt::format(",seconds={:.2f}", 0.05 + dice.real(dice.chance(0.3) ? 6 : 0.5));
  else if (span < 9) rule += fmt::format(",chance={}", dice.between(20, 500));
  return rule;
}

void Torture::storage(Dice& dice, Phase& phase) {
  for (int64_t i = dice.chance(0.7) ? 1 : dice.between(2, 3); i > 0; --i) add_failing(phase.launch, rule_of(dice));
}

// Each process separately, and not its first four threads: two that are only tried, and two of ZeroMQ, which aborts if
// they cannot be started.
void Torture::threads(Dice& dice, Phase& phase) {
  const std::string call = dice.pick<std::string>({"thread", "thread", "spawn"});
  const int64_t from = call == "thread" ? dice.between(5, 14) : dice.between(1, 3);
  std::string rule = fmt::format("call={},error={},own=1,from={}", call, EAGAIN, from);
  if (dice.chance(0.6)) rule += ",count=1";
  if (dice.chance(0.6)) rule += ",only=" + dice.pick<std::string>({"run", "join"});
  add_failing(phase.launch, rule);
}

void Torture::clock(Dice& dice, Phase& phase) {
  if (phase.launch.environment.empty()) preload(phase.launch);
  const std::string jumps =
      fmt::format("{},{},{}", dice.number(1000), dice.pick<int>({1, 10, 100, 1000}), dice.pick<int>({1, 24, 1000}));
  tell("clock " + jumps);
  phase.launch.environment.push_back("ELINVAR_CLOCK=" + jumps);
  ++faults_;
}

void Torture::streams(Dice& dice, Phase& phase) {
  const char* const names[] = {"kept", "closed", "full", "left", "stuck"};
  bool any = false;
  while (!any)
    for (size_t i = 0; i < 3; ++i) {
      const int64_t what = i == 0 ? dice.number(2) : dice.number(5);
      phase.launch.streams[i] = static_cast<Stream>(what);
      any = any || what != 0;
    }
  const auto& s = phase.launch.streams;
  tell(fmt::format("streams {} {} {}", names[static_cast<int>(s[0])], names[static_cast<int>(s[1])],
                   names[static_cast<int>(s[2])]));
  ++faults_;
}

void Torture::limits(Dice& dice, Phase& phase) {
  struct Limit {
    int what;
    const char* name;
    int64_t least, most;
  };
  const Limit limit = dice.pick<Limit>({{RLIMIT_AS, "AS", 60 << 20, 1500 << 20},
                                        {RLIMIT_DATA, "DATA", 4 << 20, 400 << 20},
                                        {RLIMIT_NOFILE, "NOFILE", 3, 120},
                                        {RLIMIT_NOFILE, "NOFILE", 3, 120},
                                        {RLIMIT_FSIZE, "FSIZE", 0, 60000},
                                        {RLIMIT_FSIZE, "FSIZE", 0, 60000},
                                        {RLIMIT_STACK, "STACK", 256 << 10, 2 << 20}});
  const int64_t value = dice.between(limit.least, limit.most);
  tell(fmt::format("limit {} {}", limit.name, value));
  phase.launch.limits.emplace_back(limit.what, static_cast<uint64_t>(value));
  ++faults_;
}

void Torture::signals(Dice& dice, Phase& phase) {
  for (int64_t bursts = dice.between(1, 4); bursts > 0; --bursts) {
    const auto [name, number] = dice.pick<std::pair<const char*, int>>({{"HUP", SIGHUP},
                                                                        {"INT", SIGINT},
                                                                        {"INT", SIGINT},
                                                                        {"TERM", SIGTERM},
                                                                        {"TERM", SIGTERM},
                                                                        {"QUIT", SIGQUIT},
                                                                        {"USR1", SIGUSR1},
                                                                        {"PIPE", SIGPIPE},
                                                                        {"ALRM", SIGALRM},
                                                                        {"KILL", SIGKILL},
                                                                        {"KILL", SIGKILL},
                                                                        {"KILL", SIGKILL},
                                                                        {"STOP", SIGSTOP},
                                                                        {"STOP", SIGSTOP},
                                                                        {"STOP", SIGSTOP}});
    const auto whom = dice.pick<std::string>({"coordinators", "coordinators", "a worker", "all workers", "all"});
    const int64_t times = dice.chance(0.2) ? dice.between(2, 5) : 1, which = dice.number(1000);
    const double stopped = dice.chance(0.3) ? 3 + dice.real(6) : dice.real(1);
    const bool by_time = dice.chance(0.5);
    Deed deed{.step = by_time ? 0 : dice.number(kSteps), .seconds = dice.real(by_time ? 0.6 : 0.03), .act = {}};
    tell(fmt::format("{} {} to {} {:.3f} s after step {}", times, name, whom, deed.seconds, deed.step));
    if (number == SIGSTOP) tell(fmt::format("CONT {:.2f} s later", stopped));
    deed.act = [=, this] {
      std::vector<Process> chosen = whom == "all" ? processes() : whom == "coordinators" ? coordinators() : workers();
      if (whom == "a worker" && !chosen.empty()) chosen = {chosen[static_cast<size_t>(which) % chosen.size()]};
      for (const Process& process : chosen) {
        for (int64_t i = 0; i < times; ++i) signal(process, number);
        if (number == SIGSTOP) later(stopped, [this, process] { signal(process, SIGCONT); });
      }
    };
    phase.deeds.push_back(deed);
  }
}

const std::vector<std::string>& Torture::kinds() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> kinds = {"streams", "limits", "signals", "directories", "damage", "pool"};
    const TemporaryFolder folder;
    if (::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") == 0) {
      ::umount2(folder.path().c_str(), MNT_DETACH);
      kinds.push_back("disk");
    }
    if (can_preload()) kinds.insert(kinds.end(), {"storage", "clock", "threads", "storm"});
    return kinds;
  }();
  return all;
}

std::string Torture::torture(const std::string& kind, uint64_t seed) {
  Dice dice(seed);
  name_ = fmt::format("{}-{}", kind, seed);
  story_.clear();
  taken_ = {};
  if (kind == "pool") return pool(dice);
  const std::vector<std::string> options = {"--workers", std::to_string(dice.between(1, 4)),
                                            "--hold",    "8",
                                            "--set",     fmt::format("run.log_every={}", kind == "streams" ? 1 : 100)};
  tell(options[1] + " workers");
  const int64_t phases = kind == "damage" || kind == "directories" ? 1 : dice.between(1, 2);
  std::string wrong;
  for (int64_t i = 0; i < phases && wrong.empty(); ++i) {
    Phase phase{.launch = {.options = options}};
    if (i > 0) phase.launch.options.push_back("--resume"), tell("resumed");
    if (kind == "storage") storage(dice, phase);
    else if (kind == "clock") clock(dice, phase), signals(dice, phase);
    else if (kind == "streams") streams(dice, phase);
    else if (kind == "limits") limits(dice, phase);
    else if (kind == "threads") threads(dice, phase);
    else if (kind == "signals") signals(dice, phase);
    else if (kind == "directories") directories(dice, phase);
    else if (kind == "disk") disk(dice, phase);
    else if (kind == "damage")
      phase.launch.options.insert(phase.launch.options.end(), {"--until", std::to_string(dice.between(1, kSteps))});
    else if (kind == "storm") {
      storage(dice, phase);
      if (dice.chance(0.5)) clock(dice, phase);
      if (dice.chance(0.3)) limits(dice, phase);
      if (dice.chance(0.2)) streams(dice, phase);
      signals(dice, phase);
    } else check(false, "[torture] there is no kind '{}'", kind);
    wrong = live(name_, phase.launch, phase.deeds, taken_);
    if (wrong.empty()) tell("ends with " + end());
    restore();
    if (fs::exists(counts_file())) {
      faults_ += failures_counted();
      tell(fmt::format("{} calls failed", failures_counted()));
      fs::remove(counts_file());
    }
  }
  if (wrong.empty() && kind == "damage") tell(damage(dice, name_));
  if (wrong.empty()) wrong = goes_on(name_, options, taken_);
  tell("at last " + end());
  return wrong;
}

}  // namespace elinvar::test
