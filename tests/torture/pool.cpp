// A pool under attack: its daemon is killed, stopped and deprived of its disk, and its jobs lose processes and folders.
// The next daemon must understand what is left, and each job must end as the undisturbed one or fail with a reason.
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/torture/faults.h"

namespace elinvar::test {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kLongestWait{90};

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

}  // namespace

pid_t Torture::serve(const Launch& launched, bool until_done) {
  std::vector<std::string> words = {"pool", "serve", "--dir", run(name_)};
  if (until_done) words.push_back("--until-done");
  return launch(name_, words, launched);
}

void Torture::happen_to_pool(Dice& dice, pid_t* daemon, int64_t jobs) {
  const int64_t what = dice.number(10), which = dice.number(1000), job = 1 + dice.number(jobs);
  const double seconds = dice.real(0.8);
  const auto one_of = [&](const std::vector<Process>& among) {
    if (!among.empty()) signal(among[static_cast<size_t>(which) % among.size()], SIGKILL);
  };
  const auto daemon_dies = [&] {
    if (*daemon == 0) return;
    ::kill(*daemon, SIGKILL);
    ::waitpid(*daemon, nullptr, 0);
    *daemon = 0;
    ++faults_;
  };
  if (what < 3) {
    tell(fmt::format("the daemon dies for {:.2f} s", seconds));
    daemon_dies();
    sleep_for(seconds);
  } else if (what < 4) {
    tell(fmt::format("the daemon stops for {:.2f} s", 3 * seconds));
    if (*daemon != 0) ::kill(*daemon, SIGSTOP);
    sleep_for(3 * seconds);
    if (*daemon != 0) ::kill(*daemon, SIGCONT);
  } else if (what < 5) {
    tell("a worker is killed"), one_of(workers());
  } else if (what < 6) {
    tell("a coordinator is killed"), one_of(coordinators());
  } else if (what < 7) {
    tell("all processes are killed");
    for (const Process& process : processes()) signal(process, SIGKILL);
    daemon_dies();
  } else if (what < 8) {
    const std::string part = dice.pick<std::string>({"run", "run", "run/checkpoints", "run/ledger.jsonl", ""});
    tell(fmt::format("'{}' of job {} is removed", part, job));
    std::error_code ignored;
    const fs::path path = run(name_) / "jobs" / std::to_string(job) / part;
    if (has_finished(run(name_) / "jobs" / std::to_string(job) / "run"))
      taken_.names.insert(fmt::format("{} over", job));
    if (fs::exists(path)) taken_.names.insert(std::to_string(job)), ++faults_;
    for (int i = 0; i < 5 && fs::exists(path, ignored); ++i) fs::remove_all(path, ignored);
  } else if (what < 9) {
    daemon_dies();
    Launch launch;
    if (can_preload()) {
      const int error = dice.pick<int>({ENOSPC, EIO, EACCES});
      add_failing(launch, fmt::format("call={},error={},under={},only=serve,from={},seconds={:.2f}",
                                      dice.pick<std::string>({"write", "open", "sync", "any", "unlink", "truncate"}),
                                      error, run(name_).string() + "/", 1 + dice.number(300), 0.1 + seconds));
    }
    *daemon = serve(launch, false);
    sleep_for(0.5 + seconds);
  } else {
    tell("the store is damaged");
    daemon_dies();
    const fs::path store = run(name_) / "pool.db";
    std::string bytes = text_of_file(store);
    if (bytes.empty()) return;
    ++faults_;
    const auto at = static_cast<size_t>(dice.number(static_cast<int64_t>(bytes.size())));
    if (dice.chance(0.3)) bytes.resize(at);
    else
      for (size_t i = at; i < std::min(bytes.size(), at + 4000); ++i) bytes[i] = static_cast<char>(dice.number(256));
    std::ofstream(store, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    taken_.names.insert("store");
  }
}

// Judges the pool after the last daemon has served all jobs to the end.
std::string Torture::judge_pool(int64_t jobs) {
  for (const auto& entry : fs::recursive_directory_iterator(run(name_)))
    if (entry.path().extension() == ".log" || entry.path().filename() == "events.jsonl")
      if (const std::string raw = raw_words_in(text_of_file(entry.path())); !raw.empty())
        return fmt::format("in {}: {}", entry.path().lexically_relative(run(name_)).string(), raw);
  if (taken_.names.contains("store")) return "";
  for (int64_t job = 1; job <= jobs; ++job) {
    const std::string id = std::to_string(job);
    const Ended ended = wait(spawn_program("pool", {"status", id, "--dir", run(name_), "--json"}, "status"), "status");
    const auto status = nlohmann::json::parse(ended.out, nullptr, /*allow_exceptions=*/false);
    if (!status.is_object()) return fmt::format("no status of job {}: {}{}", job, ended.out, ended.err);
    const std::string state = status.value("state", "");
    if (state == "failed" && taken_.names.contains(id) && !status.value("reason", "").empty()) continue;
    if (state == "finished" && taken_.names.contains(id + " over")) continue;  // it is no longer supervised
    if (state != "finished") return fmt::format("job {} is {}: {}", job, state, status.value("reason", ""));
    for (const char* file : {"ledger.jsonl", "digests.jsonl"})
      if (text_of_file(run(name_) / "jobs" / id / "run" / file) != text_of_file(run("pooled") / file))
        return fmt::format("job {} is finished, but its {} is another one or not there", job, file);
  }
  return "";
}

// Returns whether the unfinished jobs are those whose files were removed, and their coordinators name what is missing.
// The pool retries jobs without a readable checkpoint, less and less often; those without a ledger have failed.
bool Torture::refuse_clearly(int64_t jobs) const {
  for (int64_t job = 1; job <= jobs; ++job) {
    const fs::path folder = run(name_) / "jobs" / std::to_string(job);
    if (has_finished(folder / "run")) continue;
    const std::string log = text_of_file(folder / "coordinator.log"), said = log.substr(log.rfind("train: ") + 1);
    const bool clear =
        said.find("cannot resume") != std::string::npos || said.find("ends before step") != std::string::npos;
    if (!taken_.names.contains(std::to_string(job)) || !clear) return false;
  }
  return true;
}

std::string Torture::pool(Dice& dice) {
  const std::string config = folder_.write("pooled.toml", text_of({.steps = 4000,
                                                                   .batch_size = 6,
                                                                   .virtual_ranks = 3,
                                                                   .checkpoint_every = 300,
                                                                   .samples = 24,
                                                                   .image_size = 4,
                                                                   .channels = 4,
                                                                   .run = "log_every = 5000\n"}));
  if (!fs::exists(run("pooled"))) {
    const Ended ended = wait(spawn({"run", config, "--run-dir", run("pooled"), "--threads", "1"}, "pooled"), "pooled");
    if (ended.code != 0) return ended.err;
  }
  folder_.write(name_ + "/pool.toml",
                "[pool]\npage = -1\npolicy = \"equal\"\ngrace = 3\nfailures = 20\n[here]\nslots = 3\nthreads = 1\n");
  const int64_t jobs = dice.between(1, 3);
  tell(fmt::format("{} jobs", jobs));
  for (int64_t job = 0; job < jobs; ++job) {
    const Ended ended = wait(spawn_program("pool", {"submit", config, "--dir", run(name_)}, "submit"), "submit");
    if (ended.code != 0) return "cannot submit: " + ended.err;
  }
  pid_t daemon = serve({}, false);
  for (int64_t i = dice.between(1, 4); i > 0; --i) {
    sleep_for(dice.real(1.5));
    happen_to_pool(dice, &daemon, jobs);
    if (daemon == 0) daemon = serve({}, false);
  }
  sleep_for(dice.real(1));
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);

  const int number = launches();
  daemon = serve({}, true);
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  int status = 0;
  while (::waitpid(daemon, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      const Ended list = wait(spawn_program("pool", {"history", "--dir", run(name_)}, "list"), "list");
      kill_children();
      if (refuse_clearly(jobs)) return "";
      return fmt::format("after {} s the last daemon still serves:\n{}\n{}", kLongestWait.count(),
                         printed(name_, number), list.out);
    }
    sleep_for(0.01);
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  for (int i = 0; i <= number; ++i)
    if (const std::string raw = raw_words_in(printed(name_, i)); !raw.empty()) return "a daemon said: " + raw;
  const std::string said = printed(name_, number);
  if (code != 0) {
    kill_children();
    if (!taken_.names.contains("store") || code > 3 || said.find("pool.db") == std::string::npos)
      return fmt::format("the last daemon ended with code {}: {}", code, said);
    return "";
  }
  const std::string left = remaining_children(std::chrono::seconds(15));
  kill_children();
  if (!left.empty()) return "the jobs are over, but there still are: " + left;
  return judge_pool(jobs);
}

}  // namespace elinvar::test
