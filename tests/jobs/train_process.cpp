#include "tests/jobs/train_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/cli/program_beside.h"

namespace elinvar::test {

namespace fs = std::filesystem;

std::string Ended::last_line() const {
  const size_t end = out.find_last_not_of('\n') + 1;
  return out.substr(0, end).substr(out.rfind('\n', end - 1) + 1);
}

TrainRuns::TrainRuns() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

TrainRuns::~TrainRuns() { kill_children(); }

void TrainRuns::kill_children() const {
  // Killed processes may leave orphans.
  for (bool any = true; any;) {
    any = false;
    std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
    for (pid_t child = 0; children >> child; any = true) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
}

bool TrainRuns::until(const std::function<bool()>& holds, std::chrono::seconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "what the test waits for has not happened within " << limit.count() << " s";
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string TrainRuns::remaining_children(std::chrono::seconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (::waitpid(-1, nullptr, WNOHANG) >= 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      std::string states;
      std::ifstream children("/proc/self/task/" + std::to_string(::getpid()) + "/children");
      for (pid_t child = 0; children >> child;) {
        std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
        std::string state;
        for (int word = 0; word < 3; ++word) stat >> state;  // number, name, state
        states += fmt::format("process {} in state {}; ", child, state);
      }
      return states;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return "";
}

pid_t TrainRuns::spawn(std::vector<std::string> arguments, const std::string& name,
                       const std::vector<std::string>& before) const {
  return spawn_program("train", std::move(arguments), name, before);
}

pid_t TrainRuns::spawn_program(const std::string& program, std::vector<std::string> arguments, const std::string& name,
                               const std::vector<std::string>& before) const {
  arguments.insert(arguments.begin(), program_beside(program));
  arguments.insert(arguments.begin(), before.begin(), before.end());
  return spawn_words(std::move(arguments), name);
}

pid_t TrainRuns::spawn_words(std::vector<std::string> words, const std::string& name) const {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string out = folder_ / (name + ".out"), err = folder_ / (name + ".err");
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [path, descriptor] : {std::pair(&out, 1), std::pair(&err, 2)})
      ::dup2(::open(path->c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), descriptor);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  return child;
}

Ended TrainRuns::wait(pid_t child, const std::string& name, std::chrono::seconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int status = 0, code = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      code = -1;
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (code == 0) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return {code, read_file(folder_ / (name + ".out")), read_file(folder_ / (name + ".err"))};
}

std::string TrainRuns::ledger(const std::string& name) const { return read_file(folder_ / name / "ledger.jsonl"); }

std::string TrainRuns::digests(const std::string& name) const { return read_file(folder_ / name / "digests.jsonl"); }

int64_t TrainRuns::recorded(const std::string& name) const {
  if (!fs::exists(folder_ / name / "ledger.jsonl")) return 0;
  const std::string text = ledger(name);
  return std::max<int64_t>(0, std::count(text.begin(), text.end(), '\n') - 1);  // without the header
}

void TrainRuns::reach(const std::string& name, int lines) const {
  if (!until([&] { return recorded(name) >= lines; })) ADD_FAILURE() << name << " does not reach step " << lines;
}

nlohmann::json TrainRuns::status(const std::string& name) const {
  const Ended ended = wait(spawn({"ctl", folder_ / name, "status", "--json"}, "ctl"), "ctl");
  return ended.code == 0 ? nlohmann::json::parse(ended.out) : nlohmann::json::object();
}

std::string TrainRuns::endpoint(const std::string& name) const {
  const auto record = folder_ / name / "coordinator.json";
  until([&] { return std::filesystem::exists(record); });
  return nlohmann::json::parse(read_file(record)).at("endpoint");
}

}  // namespace elinvar::test
