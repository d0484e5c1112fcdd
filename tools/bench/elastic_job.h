#pragma once
// A real job, `train run` and its workers, as a person would start it on this machine, watched from outside: its
// metrics and events are read as they are written, so what is measured is what anybody could see.
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace elinvar::bench {

double now_seconds();  // of the monotonic clock

// A process of the `train` next to this program; its output goes to a file. The destructor kills it if it still runs.
class Process {
 public:
  Process() = default;
  // All threads on this core; -1: on any.
  Process(const std::vector<std::string>& arguments, const std::filesystem::path& output, int core = -1);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  int wait();  // its exit code, or 128 + the signal

 private:
  pid_t pid_ = 0;
};

// Seconds on a processor of each thread of a process, added up by the threads' names.
std::map<std::string, double> processor_seconds(pid_t pid);

class ElasticJob {
 public:
  // Starts it in `folder`, with workers of `threads` threads; worker i is bound to core i where `pinned`.
  ElasticJob(const std::filesystem::path& folder, const std::string& config, int workers, int threads, bool pinned,
             const std::vector<std::string>& more = {});
  ~ElasticJob();  // kills what is left of it

  struct Step {
    int64_t step;
    double time;  // when it was done, as its line says
    double reduce_seconds;
  };
  struct Event {
    nlohmann::json fields;
    double time;
    std::string name() const { return fields.value("event", ""); }
  };
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Event>& events() const { return events_; }

  // Reads on until it is true; Failure after `seconds`, with what the job wrote.
  void await(const std::string& what, const std::function<bool()>& done, double seconds = 300);
  void await_steps(size_t more);  // so many further steps
  size_t events_so_far();
  // The first event from index `from` on with this name that `fits`; its index.
  size_t await_event(const std::string& name, size_t from, const std::function<bool(const nlohmann::json&)>& fits = {});
  double step_seconds(size_t last) const;  // the median of so many

  struct Worker {
    int id;
    pid_t pid;
  };
  std::vector<Worker> workers();
  Process join(int core, int threads);
  void ctl(const std::vector<std::string>& words);
  void resume();  // after its end
  int wait() { return coordinator_.wait(); }
  pid_t coordinator() const { return coordinator_.pid(); }

 private:
  void start();
  void read();
  std::string output() const;

  std::filesystem::path folder_, run_;
  std::string config_;
  int workers_, threads_;
  bool pinned_;
  std::vector<std::string> more_;
  int watch_ = -1, runs_ = 0, joins_ = 0;
  std::map<std::string, int64_t> read_up_to_;  // of each file
  std::vector<Step> steps_;
  std::vector<Event> events_;
  Process coordinator_;
};

}  // namespace elinvar::bench
