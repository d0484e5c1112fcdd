#include "tools/bench/elastic_job.h"

#include <algorithm>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "elastic/ledger/utc_time.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/peak/timing.h"
#include "tools/cli/program_beside.h"

namespace elinvar::bench {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Binds all current threads of a process; new threads inherit the binding.
void pin(pid_t pid, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  std::error_code gone;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), gone))
    sched_setaffinity(std::stoi(task.path().filename().string()), sizeof set, &set);
}

int nth_core(int n) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return n;
  for (int core = 0, wanted = n % CPU_COUNT(&set); core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<size_t>(core), &set) && wanted-- == 0) return core;
  return 0;
}

// Converts a time in a run's files to seconds of the monotonic clock.
double monotonic(const std::string& utc) {
  using namespace std::chrono;
  const std::optional<double> then = seconds_of_utc(utc);
  if (!then) fail("expected a time, got '{}'", utc);
  return *then - duration<double>(system_clock::now().time_since_epoch()).count() + now_seconds();
}

// Running processes; a signal that interrupts the benchmark ends them, too.
constexpr size_t kMostProcesses = 64;
std::atomic<pid_t> g_running[kMostProcesses];

void end_all(int number) {
  for (const std::atomic<pid_t>& pid : g_running)
    if (pid != 0) ::kill(pid, SIGTERM);
  ::_exit(128 + number);
}

void remember(pid_t pid) {
  static const bool handled = [] {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, end_all);
    return true;
  }();
  (void)handled;
  for (std::atomic<pid_t>& slot : g_running)
    if (pid_t none = 0; slot.compare_exchange_strong(none, pid)) return;
}

void forget(pid_t pid) {
  for (std::atomic<pid_t>& slot : g_running)
    if (slot == pid) slot = 0;
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Process::Process(const std::vector<std::string>& arguments, const fs::path& output, int core) {
  std::vector<std::string> words{program_beside("train").string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = 0;
    fail("cannot start {}: {}", words[0], std::strerror(error));
  }
  remember(pid_);
  if (core >= 0) pin(pid_, nth_core(core));
}

Process::~Process() {
  signal(SIGKILL);
  wait();
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  return *this;
}

void Process::signal(int number) const {
  if (pid_ != 0) ::kill(pid_, number);
}

int Process::wait() {
  if (pid_ == 0) return 0;
  int status = 0;
  ::waitpid(pid_, &status, 0);
  forget(std::exchange(pid_, 0));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::map<std::string, double> processor_seconds(pid_t pid) {
  std::map<std::string, double> seconds;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    std::ifstream name(task.path() / "comm"), times(task.path() / "schedstat");
    std::string text;
    double nanoseconds = 0;
    if (std::getline(name, text) && times >> nanoseconds) seconds[text] += 1e-9 * nanoseconds;
  }
  return seconds;
}

ElasticJob::ElasticJob(const fs::path& folder, const std::string& config, int workers, int threads, bool pinned,
                       const std::vector<std::string>& more)
    : folder_(folder), run_(folder / "run"), workers_(workers), threads_(threads), pinned_(pinned), more_(more) {
  make_directories(run_);
  config_ = folder / "job.toml";
  replace_file(config_, config);
  watch_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (watch_ < 0 || ::inotify_add_watch(watch_, run_.c_str(), IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
    fail("cannot watch {}: {}", run_.string(), std::strerror(errno));
  start();
}

ElasticJob::~ElasticJob() {
  try {
    for (const Worker& worker : this->workers()) ::kill(worker.pid, SIGKILL);
  } catch (const std::exception&) {  // it has ended already
  }
  coordinator_ = Process();
  ::close(watch_);
}

void ElasticJob::start() {
  std::vector<std::string> arguments = {"run",       config_,
                                        "--run-dir", run_.string(),
                                        "--workers", std::to_string(workers_),
                                        "--threads", std::to_string(threads_)};
  arguments.insert(arguments.end(), more_.begin(), more_.end());
  if (runs_++ > 0) arguments.emplace_back("--resume");
  const size_t before = events_so_far();
  coordinator_ = Process(arguments, folder_ / "run.log");
  await_event("generation", before);
  if (!pinned_) return;
  int core = 0;
  for (const Worker& worker : workers()) pin(worker.pid, nth_core(core++));
}

void ElasticJob::resume() { start(); }

std::string ElasticJob::output() const {
  return fs::exists(folder_ / "run.log") ? read_file(folder_ / "run.log") : std::string();
}

// Reads what was added to the files; the last line may be incomplete.
void ElasticJob::read() {
  const double time = now_seconds();
  const auto lines_of = [&](const std::string& name) {
    std::vector<std::string> lines;
    std::ifstream file(run_ / name);
    file.seekg(read_up_to_[name]);
    for (std::string line; std::getline(file, line) && !file.eof();) {
      read_up_to_[name] += static_cast<int64_t>(line.size()) + 1;
      lines.push_back(std::move(line));
    }
    return lines;
  };
  for (const std::string& line : lines_of("metrics.jsonl")) {
    const Json json = Json::parse(line);
    if (json.contains("loss"))
      steps_.push_back(
          {json["step"], monotonic(json.at("time").get<std::string>()), json.value("reduce_seconds", 0.0)});
  }
  for (const std::string& line : lines_of("events.jsonl")) events_.push_back({Json::parse(line), time});
}

void ElasticJob::await(const std::string& what, const std::function<bool()>& done, double seconds) {
  const double until = now_seconds() + seconds;
  for (read(); !done(); read()) {
    if (now_seconds() > until) fail("{} did not happen within {:.0f} s; the job wrote:\n{}", what, seconds, output());
    siginfo_t ended{};
    if (::waitid(P_PID, static_cast<id_t>(coordinator_.pid()), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        ended.si_pid != 0)
      fail("the job ended before {}; it wrote:\n{}", what, output());
    pollfd changes{watch_, POLLIN, 0};
    ::poll(&changes, 1, 200);
    char ignored[4096];
    while (::read(watch_, ignored, sizeof ignored) > 0) {
    }
  }
}

void ElasticJob::await_steps(size_t more) {
  const size_t wanted = steps_.size() + more;
  await("a step", [&] { return steps_.size() >= wanted; });
}

size_t ElasticJob::events_so_far() {
  read();
  return events_.size();
}

size_t ElasticJob::await_event(const std::string& name, size_t from, const std::function<bool(const Json&)>& fits) {
  size_t at = from;
  await("the event '" + name + "'", [&] {
    for (; at < events_.size(); ++at)
      if (events_[at].name() == name && (!fits || fits(events_[at].fields))) return true;
    return false;
  });
  return at;
}

double ElasticJob::step_seconds(size_t last) const {
  std::vector<double> seconds;
  for (size_t i = steps_.size(); i-- > 1 && seconds.size() < last;)
    seconds.push_back(steps_[i].time - steps_[i - 1].time);
  return seconds.empty() ? 0 : median(seconds);
}

int64_t ElasticJob::parameters() const {
  const std::string text = output();
  const size_t end = text.find(" parameters, "), begin = text.rfind(' ', end == 0 ? 0 : end - 1);
  if (end == std::string::npos || begin == std::string::npos) fail("the job does not tell its parameters:\n{}", text);
  return std::stoll(text.substr(begin + 1, end - begin - 1));
}

std::vector<ElasticJob::Worker> ElasticJob::workers() {
  const fs::path out = folder_ / "status.json";
  std::error_code ignored;
  fs::remove(out, ignored);
  if (Process({"ctl", run_.string(), "status", "--json"}, out).wait() != 0) fail("no status: {}", read_file(out));
  std::vector<Worker> workers;
  const std::string said = read_file(out);  // the status may follow a notice that ctl waits
  const Json status = Json::parse(said.substr(std::min(said.find('{'), said.size())));
  for (const Json& w : status.at("workers"))
    workers.push_back({w.at("id").get<int>(), w.at("about").at("pid").get<pid_t>()});
  return workers;
}

Process ElasticJob::join(int core, int threads) {
  const std::string endpoint = Json::parse(read_file(run_ / "coordinator.json")).at("endpoint");
  return {{"join", endpoint, "--threads", std::to_string(threads)},
          folder_ / fmt::format("join-{}.log", joins_++),
          pinned_ ? core : -1};
}

void ElasticJob::ctl(const std::vector<std::string>& words) {
  std::vector<std::string> arguments = {"ctl", run_.string()};
  arguments.insert(arguments.end(), words.begin(), words.end());
  if (Process(arguments, folder_ / "ctl.log").wait() != 0) fail("train ctl: {}", read_file(folder_ / "ctl.log"));
}

}  // namespace elinvar::bench
