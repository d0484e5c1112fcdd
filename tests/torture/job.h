#pragma once
// A tiny job among enemies: how it is started, what is done to its processes while they run, and what must be true of
// it afterwards whatever was done.
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
  closed,  // there is none
  full,    // /dev/full
  left,    // a pipe whose reader goes away after a line
  stuck    // a small pipe that nobody reads
};

// One start of `train run`.
struct Launch {
  std::vector<std::string> options = {}, environment = {};  // the latter NAME=VALUE
  std::vector<std::pair<int, uint64_t>> limits = {};        // of setrlimit()
  std::array<Stream, 3> streams = {};                       // stdin, stdout, stderr
};

struct Process {
  pid_t pid = 0;
  std::string role = {};  // run, join, coordinate; "": it is being started, or has just ended
};

// What is done to a job when its ledger has so many steps, and so many seconds have gone by since then.
struct Deed {
  int64_t step = 0;
  double seconds = 0;
  std::function<void()> act;
};

// What a schedule has taken from a run, so that it need not be there, nor the run go on.
struct Taken {
  std::set<std::string> names = {};  // of files and folders; one of them is in each refusal. "": any refusal will do
  bool ledger = false, checkpoints = false;
  bool over = false;  // the job had finished before
};

// What nobody is to read, in a text: words of an exception that was meant for programmers, or of a process that broke.
std::string raw_words_in(const std::string& text);
std::string text_of_file(const std::filesystem::path& path);  // "" for what cannot be read
bool has_finished(const std::filesystem::path& run_directory);

class TortureJob : public TinyJob {
 protected:
  // Starts a job and does the deeds, until no process of it is left. What was wrong with that, or "": a hang, an end by
  // a signal that nobody sent, an end without a word, a raw exception, a claim that does not hold.
  std::string live(const std::string& name, const Launch& launch, std::vector<Deed> deeds, const Taken& taken);
  // The job is resumed without any disturbance; it must end as the undisturbed run, and leave nothing aside, or refuse
  // what was taken from it.
  std::string goes_on(const std::string& name, const std::vector<std::string>& options, const Taken& taken);

  // One of the project's programs, whose output goes to files named NAME.<number>.
  pid_t launch(const std::string& name, std::vector<std::string> words, const Launch& launch);
  int launches() const { return launches_; }  // so far: the number of the next one
  std::string printed(const std::string& name, int number) const;

  // For deeds.
  std::vector<Process> processes() const;  // of the job that lives
  std::vector<Process> coordinators() const;
  std::vector<Process> workers() const;
  void signal(const Process& process, int number);
  void later(double seconds, std::function<void()> act);  // from now

  void forget(const std::string& name);                                // all files of it
  void keep(const std::string& name, const std::string& where) const;  // copies them
  std::filesystem::path run(const std::string& name) const { return folder_ / name; }
  const std::string& end() const { return end_; }  // of what was started last: its exit code and its last words
  int64_t struck() const { return struck_; }       // signals that were sent to processes that were there

 private:
  std::string watch(const std::string& name, pid_t child, int* code);
  bool digests_are_right(const std::string& name, const std::string& err) const;
  std::string standing(const std::string& name, const Taken& taken);
  std::string left_processes() const;
  void read_lines();

  std::vector<std::pair<double, std::function<void()>>> timed_;  // by the clock of now()
  std::vector<Deed> deeds_;
  std::set<int> sent_;
  std::vector<int> pipes_, read_;  // ends of pipes that are here; the latter are read until a line has come
  std::string seen_name_, end_;
  int64_t looked_at_ = 0;
  int64_t seen_ = 0;  // steps that the ledger of this run had at most
  int64_t struck_ = 0;
  int launches_ = 0;
};

}  // namespace elinvar::test
