#include "tests/torture/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "elastic/checkpoint/checkpoint.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/cli/program_beside.h"

namespace elinvar::test {

namespace fs = std::filesystem;

namespace {

constexpr double kLongestJob = 60;  // seconds, for a job that takes one second undisturbed
constexpr int kKept = 3;            // checkpoints

constexpr const char* kRaw[] = {
    "terminate called", "Assertion",    "Sanitizer",   "runtime error:", "what():",     "bad_alloc", "basic_str",
    "[json.",           "vector::",     "map::at",     "stoi",           "stoll",       "stod",      "(src/",
    "bad_function",     "bad_optional", "bad_variant", "std::",          "out_of_range"};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string whole_lines_of(std::string text) {
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  return text;
}

int64_t steps_in(const std::string& ledger) {
  return std::max<int64_t>(0, std::count(ledger.begin(), ledger.end(), '\n') - 1);
}

void children_of(pid_t parent, std::vector<pid_t>* all) {
  std::error_code error;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", parent), error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) {
      all->push_back(child);
      children_of(child, all);
    }
  }
}

}  // namespace

std::string raw_words_in(const std::string& text) {
  for (const char* word : kRaw) {
    const size_t at = text.find(word);
    if (at == std::string::npos) continue;
    const size_t begin = text.rfind('\n', at) + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  }
  return "";
}

std::string text_of_file(const fs::path& path) {  // "" if it cannot be read
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool has_finished(const fs::path& run_directory) {
  return text_of_file(run_directory / "result.json").find("\"finished\"") != std::string::npos;
}

std::vector<Process> TortureJob::processes() const {
  std::vector<pid_t> all;
  children_of(::getpid(), &all);
  std::vector<Process> found;
  for (const pid_t pid : all) {
    std::istringstream words(text_of_file(fmt::format("/proc/{}/cmdline", pid)));
    std::string role;
    for (int i = 0; i < 2; ++i) std::getline(words, role, '\0');
    found.push_back({pid, role});
  }
  return found;
}

std::vector<Process> TortureJob::coordinators() const {
  std::vector<Process> all = processes();
  std::erase_if(all, [](const Process& p) { return p.role != "run" && p.role != "coordinate"; });
  return all;
}

std::vector<Process> TortureJob::workers() const {
  std::vector<Process> all = processes();
  std::erase_if(all, [](const Process& p) { return p.role != "join"; });
  return all;
}

void TortureJob::signal(const Process& process, int number) {
  if (::kill(process.pid, number) != 0) return;
  sent_.insert(number);
  ++struck_;
}

void TortureJob::later(double seconds, std::function<void()> act) {
  timed_.emplace_back(now() + seconds, std::move(act));
}

std::string TortureJob::printed(const std::string& name, int number) const {
  return text_of_file(folder_ / fmt::format("{}.{}.out", name, number)) +
         text_of_file(folder_ / fmt::format("{}.{}.err", name, number));
}

pid_t TortureJob::launch(const std::string& name, std::vector<std::string> words, const Launch& launch) {
  words[0] = program_beside(words[0]);
  std::vector<char*> argv, environment;
  for (std::string& word : words) argv.push_back(word.data());
  for (char** word = environ; *word; ++word) environment.push_back(*word);
  for (const std::string& word : launch.environment) environment.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  environment.push_back(nullptr);
  std::array<int, 3> streams{};
  for (int i = 0; i < 3; ++i) {
    const Stream stream = launch.streams[static_cast<size_t>(i)];
    int& file = streams[static_cast<size_t>(i)];
    const std::string path = folder_ / fmt::format("{}.{}.{}", name, launches_, i == 1 ? "out" : "err");
    if (stream == Stream::full) file = ::open("/dev/full", O_RDWR | O_CLOEXEC);
    else if (stream == Stream::kept && i == 0) file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    else if (stream == Stream::kept) file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    else if (stream == Stream::closed) file = -1;
    if (stream != Stream::left && stream != Stream::stuck) continue;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("cannot make a pipe");
    ::fcntl(ends[1], F_SETPIPE_SZ, 4096);
    ::fcntl(ends[i == 0 ? 1 : 0], F_SETFL, O_NONBLOCK);
    file = ends[i == 0 ? 0 : 1];
    const int other = ends[i == 0 ? 1 : 0];
    if (stream == Stream::stuck) pipes_.push_back(other);
    else read_.push_back(other);
  }
  ++launches_;
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) {
      const int file = streams[static_cast<size_t>(i)];
      if (file >= 0) ::dup2(file, i);
      else ::close(i);
    }
    for (const auto& [what, most] : launch.limits) {
      const rlimit limit{most, most};
      ::setrlimit(static_cast<__rlimit_resource>(what), &limit);
    }
    ::execve(argv[0], argv.data(), environment.data());
    ::_exit(127);
  }
  for (const int file : streams)
    if (file >= 0) ::close(file);
  return child;
}

// Returns each remaining process with the activity of its threads.
std::string TortureJob::left_processes() const {
  std::string text;
  for (const Process& process : processes()) {
    text += fmt::format("\n  {} {}:", process.pid, process.role);
    std::error_code error;
    for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", process.pid), error)) {
      std::string comm = text_of_file(task.path() / "comm"), stat = text_of_file(task.path() / "stat");
      if (!comm.empty()) comm.pop_back();
      const size_t end = stat.rfind(')');
      text += fmt::format(" {} ({} in {}),", comm, end == std::string::npos ? "?" : stat.substr(end + 2, 1),
                          text_of_file(task.path() / "wchan"));
    }
  }
  return text;
}

// Reads from pipes whose reader leaves after a line.
void TortureJob::read_lines() {
  std::erase_if(read_, [](int file) {
    char text[64];
    const ssize_t got = ::read(file, text, sizeof text);
    const bool goes =
        got == 0 || (got > 0 && std::string_view(text, static_cast<size_t>(got)).find('\n') != std::string::npos);
    if (goes) ::close(file);
    return goes;
  });
}

std::string TortureJob::watch(const std::string& name, pid_t child, int* code) {
  const double began = now();
  double looked = 0;
  *code = -1;
  while (true) {
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0)
      if (ended == child) *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0) return "";  // orphans of the job become children of this process, and all of them have ended
    read_lines();
    int64_t step = looked_at_;
    if (now() > looked + (deeds_.empty() ? 0.05 : 0)) {
      looked = now();
      step = steps_in(text_of_file(folder_ / name / "ledger.jsonl"));
      seen_ = std::max(seen_, std::min(step, looked_at_));  // read twice, because a failed write is undone
      looked_at_ = step;
    }
    for (size_t i = 0; i < deeds_.size();) {
      if (deeds_[i].step > std::max(step, seen_)) {
        ++i;
        continue;
      }
      later(deeds_[i].seconds, std::move(deeds_[i].act));
      deeds_.erase(deeds_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::vector<std::function<void()>> due;
    std::erase_if(timed_, [&](auto& one) {
      if (one.first > now()) return false;
      due.push_back(std::move(one.second));
      return true;
    });
    for (const auto& act : due) act();
    if (now() > began + kLongestJob) {
      const std::string hang = fmt::format("after {:g} s there still are{}", kLongestJob, left_processes());
      kill_children();
      return hang;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

// Returns whether the digests are those of the undisturbed run or, if the file was removed and the job has reported
// that the first lines are missing, the last of them.
bool TortureJob::digests_are_right(const std::string& name, const std::string& err) const {
  const std::string own = text_of_file(folder_ / name / "digests.jsonl"), whole = digests("whole");
  if (own == whole) return true;
  const size_t header = whole.find('\n') + 1;
  return err.find("digests.jsonl lacks the lines of the first steps") != std::string::npos &&
         own.starts_with(whole.substr(0, header)) && whole.ends_with("\n" + own.substr(header));
}

std::string TortureJob::live(const std::string& name, const Launch& launched, std::vector<Deed> deeds,
                             const Taken& taken) {
  if (seen_name_ != name) seen_ = looked_at_ = 0;
  seen_name_ = name;
  sent_.clear();
  timed_.clear();
  deeds_ = std::move(deeds);
  const std::string out_path = folder_ / fmt::format("{}.{}.out", name, launches_),
                    err_path = folder_ / fmt::format("{}.{}.err", name, launches_);
  const std::string events_before = text_of_file(folder_ / name / "events.jsonl");
  int code = -1;
  std::vector<std::string> words = {"train",     "run", folder_ / "job.toml", "--run-dir", folder_ / name,
                                    "--threads", "1"};
  words.insert(words.end(), launched.options.begin(), launched.options.end());
  const pid_t child = launch(name, words, launched);
  const std::string hang = watch(name, child, &code);
  for (const std::vector<int>& files : {std::exchange(pipes_, {}), std::exchange(read_, {})})
    for (const int file : files) ::close(file);
  if (!hang.empty()) return hang;

  const std::string out = text_of_file(out_path), err = text_of_file(err_path);
  end_ = fmt::format("code {}", code);
  if (const size_t last = err.rfind("train: "); last != std::string::npos)
    end_ += ", '" + err.substr(last, err.find('\n', last) - last) + "'";
  for (const std::string& text : {out, err})
    if (const std::string raw = raw_words_in(text); !raw.empty()) return fmt::format("exit code {}: {}", code, raw);
  std::string events = text_of_file(folder_ / name / "events.jsonl");
  if (events.starts_with(events_before)) events.erase(0, events_before.size());
  if (const std::string raw = raw_words_in(events); !raw.empty()) return "in events.jsonl: " + raw;
  const std::string by_signal = "killed by signal ";
  for (size_t at = 0; (at = events.find(by_signal, at)) != std::string::npos; ++at) {
    const int number = std::atoi(events.c_str() + at + by_signal.size());
    if (number != SIGKILL && !sent_.contains(number)) return fmt::format("a worker was killed by signal {}", number);
  }
  if (code > 128 && !sent_.contains(code - 128)) return fmt::format("killed by signal {}: {}", code - 128, err);
  const bool by_loader = code == 127 && err.find("shared libraries") != std::string::npos;
  if (code <= 128 && code != 0 && code != 2 && code != 3 && !by_loader)
    return fmt::format("exit code {}: {}", code, err);
  const bool stderr_kept = launched.streams[2] == Stream::kept;
  const size_t said = err.rfind("train: ");
  if ((code == 2 || code == 3) && stderr_kept && (said == std::string::npos || err.size() < said + 20))
    return fmt::format("exit code {} without a word: {}", code, err);
  const bool claims = code == 0 && !taken.over && out.find(fmt::format("final step={}", kSteps)) != std::string::npos;
  if (claims && text_of_file(folder_ / name / "ledger.jsonl") != undisturbed())
    return "it says that it is finished, but its ledger is another one or not there";
  if (claims && !digests_are_right(name, err))
    return "it says that it is finished, but its digests are others or not there";
  const bool to_stop = taken.over || sent_.contains(SIGINT) || sent_.contains(SIGTERM) || sent_.contains(SIGHUP) ||
                       std::ranges::count(launched.options, "--until") > 0;
  if (code == 0 && !claims && !to_stop && launched.streams[1] == Stream::kept)
    return "exit code 0, but it is not finished, and nobody told it to stop: " + out + err;
  return standing(name, taken);
}

// Checks the run directory after the last write: no confirmed data are missing, and nothing in it is wrong.
std::string TortureJob::standing(const std::string& name, const Taken& taken) {
  const fs::path path = folder_ / name;
  const std::string ledger = whole_lines_of(text_of_file(path / "ledger.jsonl"));
  if (!taken.ledger) {
    if (!undisturbed().starts_with(ledger)) return "the ledger has what the undisturbed run has not";
    if (!digests("whole").starts_with(whole_lines_of(text_of_file(path / "digests.jsonl"))))
      return "digests.jsonl has what the undisturbed run has not";
    if (steps_in(ledger) < seen_) return fmt::format("the ledger had {} steps, and has {}", seen_, steps_in(ledger));
  }
  if (taken.checkpoints) return "";
  std::set<int64_t> promised;
  for (const std::string& line : lines_of(text_of_file(path / "events.jsonl"))) {
    const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object() && event.value("event", "") == "checkpoint") promised.insert(event.at("step").get<int64_t>());
  }
  // All checkpoints except those that newer ones replace, whether or not these were announced before the end.
  const CheckpointStore store(path / "checkpoints");
  for (const int64_t step : store.steps()) promised.insert(step);
  int good = 0;
  for (auto step = promised.rbegin(); step != promised.rend() && good < kKept; ++step) {
    try {
      (void)store.read(*step);
      ++good;
    } catch (const std::exception& failure) {
      return fmt::format("checkpoint {} was promised, but: {}", *step, failure.what());
    }
  }
  return "";
}

std::string TortureJob::goes_on(const std::string& name, const std::vector<std::string>& options, const Taken& taken) {
  Launch launch{.options = options};
  launch.options.push_back("--resume");
  const int number = launches_;
  if (std::string wrong = live(name, launch, {}, taken); !wrong.empty()) return "resumed: " + wrong;
  const std::string err = text_of_file(folder_ / fmt::format("{}.{}.err", name, number));
  if (text_of_file(folder_ / name / "ledger.jsonl") != undisturbed() || !digests_are_right(name, err)) {
    if (taken.names.empty()) return "resumed, it does not end as the undisturbed run: " + err;
    for (const std::string& refused : taken.names)
      if (err.find("train: ") != std::string::npos && err.find(refused) != std::string::npos) return "";
    return "resumed, it refuses, but does not name what is damaged: " + err;
  }
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / name, error)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(".writing") || file.ends_with(".new")) return "left aside: " + entry.path().string();
  }
  return "";
}

void TortureJob::forget(const std::string& name) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    if (entry.path().filename().string().starts_with(name)) files.push_back(entry.path());
  for (const fs::path& path : files) fs::remove_all(path);
}

void TortureJob::keep(const std::string& name, const std::string& where) const {
  fs::create_directories(where);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    if (entry.path().filename().string().starts_with(name))
      fs::copy(entry.path(), fs::path(where) / entry.path().filename(),
               fs::copy_options::recursive | fs::copy_options::overwrite_existing | fs::copy_options::copy_symlinks,
               ignored);
}

}  // namespace elinvar::test
