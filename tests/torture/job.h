#pragma once
// A tiny job under attack: how it is started, the disturbances of its processes while they run, and the conditions that
// it must meet afterwards in any case.
#include <array>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/jobs/tiny_job.h"

namespace elinvar::test {

enum class Stream {
  kept,    // goes to a file
  closed,  // closed
  full,    // /dev/full
  left,    // a pipe whose reader leaves after a line
  stuck    // a small pipe without a reader
};

// One start of `train run`.
struct Launch {
  std::vector<std::string> options = {}, environment = {};  // `environment` has entries NAME=VALUE
  std::vector<std::pair<int, uint64_t>> limits = {};        // for setrlimit()
  std::array<Stream, 3> streams = {};                       // stdin, stdout, stderr
};

struct Process {
  pid_t pid = 0;
  std::string role = {};  // run, join, coordinate; "": it is starting, or has just ended
};

// An action on a job, this many seconds after its ledger has reached this step.
struct Deed {
  int64_t step = 0;
  double seconds = 0;
  std::function<void()> act;
};

// Files that a schedule has taken from a run: they may be missing, and the run need not continue.
struct Taken {
  // names of files and folders, one of which each refusal contains; "": any refusal is accepted
  std::set<std::string> names = {};
  bool ledger = false, checkpoints = false;
  bool over = false;  // the job had finished before
};

// Returns text that users should not see: messages for programmers, or of a process that broke.
std::string raw_words_in(const std::string& text);
std::string text_of_file(const std::filesystem::path& path);  // "" if it cannot be read
bool has_finished(const std::filesystem::path& run_directory);

class TortureJob : public TinyJob {
 protected:
  // Starts a job and performs the actions until no process of it is left. Returns what was wrong, or "": a hang, an end
  // by a signal that was not sent, an end without a message, a raw exception, or a claim that does not hold.
  std::string live(const std::string& name, const Launch& launch, std::vector<Deed> deeds, const Taken& taken);
  // Resumes the job undisturbed. It must end as the undisturbed run and leave nothing behind, or refuse because of what
  // was taken from it.
  std::string goes_on(const std::string& name, const std::vector<std::string>& options, const Taken& taken);

  // Starts one of the project's programs, whose output goes to files named NAME.<number>.
  pid_t launch(const std::string& name, std::vector<std::string> words, const Launch& launch);
  int launches() const { return launches_; }  // number of starts so far, which is the next number
  std::string printed(const std::string& name, int number) const;

  // For actions.
  std::vector<Process> processes() const;  // processes of the running job
  std::vector<Process> coordinators() const;
  std::vector<Process> workers() const;
  void signal(const Process& process, int number);
  void later(double seconds, std::function<void()> act);  // after this many seconds

  void forget(const std::string& name);                                // removes all its files
  void keep(const std::string& name, const std::string& where) const;  // copies its files
  std::filesystem::path run(const std::string& name) const { return folder_ / name; }
  const std::string& end() const { return end_; }  // exit code and last output of the newest start
  int64_t struck() const { return struck_; }       // signals that reached processes

 private:
  std::string watch(const std::string& name, pid_t child, int* code);
  bool digests_are_right(const std::string& name, const std::string& err) const;
  std::string standing(const std::string& name, const Taken& taken);
  std::string left_processes() const;
  void read_lines();

  std::vector<std::pair<double, std::function<void()>>> timed_;  // by the time of now()
  std::vector<Deed> deeds_;
  std::set<int> sent_;
  std::vector<int> pipes_, read_;  // ends of pipes in this process; those in `read_` are read until a line has come
  std::string seen_name_, end_;
  int64_t looked_at_ = 0;
  int64_t seen_ = 0;  // maximum number of steps in this run's ledger so far
  int64_t struck_ = 0;
  int launches_ = 0;
};

}  // namespace elinvar::test
