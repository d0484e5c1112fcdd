#pragma once
// A real job, `train run` and its workers, started on this machine and observed from outside: its metrics and events
// are read as they are written, as any program could.
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace elinvar::bench {

double now_seconds();  // on the monotonic clock

// A process of the `train` next to this program; its output goes to a file. The destructor kills it if it still runs.
class Process {
 public:
  Process() = default;
  // Binds all threads to this core; -1: no binding.
  Process(const std::vector<std::string>& arguments, const std::filesystem::path& output, int core = -1);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  int wait();  // returns its exit code, or 128 + the signal

 private:
  pid_t pid_ = 0;
};

// Returns the processor seconds of a process's threads, summed by thread name.
std::map<std::string, double> processor_seconds(pid_t pid);

class ElasticJob {
 public:
  // Starts the job in `folder` with workers of `threads` threads each; if `pinned`, worker i is bound to core i.
  ElasticJob(const std::filesystem::path& folder, const std::string& config, int workers, int threads, bool pinned,
             const std::vector<std::string>& more = {});
  ~ElasticJob();  // kills processes that are left

  struct Step {
    int64_t step;
    double time;  // when it ended, from its line
    double reduce_seconds;
  };
  struct Event {
    nlohmann::json fields;
    double time;
    std::string name() const { return fields.value("event", ""); }
  };
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<Event>& events() const { return events_; }

  // Reads until `done` returns true. Throws Failure with the job's output after `seconds`.
  void await(const std::string& what, const std::function<bool()>& done, double seconds = 300);
  void await_steps(size_t more);  // waits for further steps
  size_t events_so_far();
  // Waits for the first event from index `from` on with this name for which `fits` holds. Returns its index.
  size_t await_event(const std::string& name, size_t from, const std::function<bool(const nlohmann::json&)>& fits = {});
  double step_seconds(size_t last) const;  // median of the last ones
  int64_t parameters() const;              // of its network, as it says when it begins

  struct Worker {
    int id;
    pid_t pid;
  };
  std::vector<Worker> workers();
  Process join(int core, int threads);
  void ctl(const std::vector<std::string>& words);
  void resume();  // after it has ended
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
  std::map<std::string, int64_t> read_up_to_;  // position by file
  std::vector<Step> steps_;
  std::vector<Event> events_;
  Process coordinator_;
};

}  // namespace elinvar::bench
