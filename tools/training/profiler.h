#pragma once
// `run --profile`: what a worker does in a few of its steps. Each op (tensor/trace.h) and each activity
// (tensor/base/activity.h), with its virtual rank if it has one, becomes an event of a trace in Chrome's format, which
// https://ui.perfetto.dev and chrome://tracing open; tools/training/profile_report.h turns it into a table, and
// tools/repro/report_step.h draws a step.
//
// Nothing is recorded outside the steps of the window, and no bit depends on the profiler. On a GPU the profiler waits
// for each op, so that the time between its begin and its end is its own. Builds with CUDA also mark ranges for
// NVIDIA's tools (NVTX).
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <vector>

#include "tensor/base/activity.h"
#include "tensor/trace.h"

namespace elinvar {

// Steps first to last, counted from 1 as in the ledger.
struct ProfileWindow {
  int64_t first = 0, last = 0;
  bool operator==(const ProfileWindow&) const = default;
  std::string text() const;  // such as "10-14", which parse_profile_window reads
};
// Parses "10-14", "7" or "auto": the tenth to the fourteenth step after the `made` existing ones. Throws UsageError for
// other text.
ProfileWindow parse_profile_window(std::string_view text, int64_t made);
// Returns the window, moved if necessary so that it does not end after the last step.
ProfileWindow within(ProfileWindow window, int64_t steps);

class Profiler final : public Recorder, public ActivityWatcher {
 public:
  // `save` receives the trace when the window ends. The window ends early, before a step, when half of kMostEvents may
  // not suffice for it. In a single step the events above the limit are only counted.
  Profiler(ProfileWindow window, Device device,
           std::function<void(const nlohmann::ordered_json& trace, int worker)> save);
  ~Profiler() override;

  // The computing thread begins a step after `made` completed steps, as this worker of the job.
  void step(int64_t made, int worker);
  void finish();  // no further step follows

  void begins(const AnyOp& op, const TraceValues& arguments) override;
  void ends(const TraceValues& results, const OpWork& work) override;
  void begins(const char* what) override;
  void ends(const char* what, Time began, int vrank) override;

  static constexpr size_t kMostEvents = size_t{1} << 18;

 private:
  struct Event {
    const char* name;
    const char* category;
    int thread;
    Time began, ended;
    OpWork work = {};
    const std::string* shapes = nullptr;
    int64_t step = 0;
    int vrank = activity::kNoRank;
  };
  struct Thread {
    int row;
    std::string name;
  };

  bool closes(int64_t made) const;  // whether this step ends the window
  void begin_watching();
  void stop_watching();
  void end_step();
  void add(Event event);
  int row_of_this_thread();  // requires the lock
  nlohmann::ordered_json trace() const;

  ProfileWindow window_;
  Device device_;
  std::function<void(const nlohmann::ordered_json& trace, int worker)> save_;
  int worker_ = 0;
  std::optional<RecordScope> recording_;  // belongs to the computing thread; set while the window is open
  int64_t step_ = 0;                      // the current step, counted from 1
  Time step_began_, op_began_;
  const AnyOp* op_ = nullptr;
  const std::string* op_shapes_ = nullptr;
  int64_t began_unix_ns_ = 0;  // wall-clock time when the first step began
  Time began_;                 // the same moment on this process's steady clock

  mutable std::mutex mutex_;  // guards the members below
  bool open_ = false;
  std::vector<Event> events_;
  size_t lost_ = 0;
  std::map<std::thread::id, Thread> threads_;
  std::unordered_set<std::string> texts_;
};

}  // namespace elinvar
