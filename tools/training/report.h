#pragma once
// The reports of a run: to a person on stdout and stderr, to `ctl status`, and to those files of its directory that no
// process of the job reads again (environment.json, metrics.jsonl, events.jsonl, result.json), and config.toml, with
// which a resumed run is compared.
#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "elastic/ledger/goodput.h"
#include "elastic/protocol/roster.h"
#include "elastic/run/run_directory.h"
#include "tools/config/config.h"
#include "tools/training/elastic_job.h"
#include "tools/training/event_file.h"
#include "tools/training/metrics.h"
#include "tools/training/progress.h"

namespace elinvar {

// Writes JSON to a file. Bytes that are not UTF-8, which file names may contain, become replacement characters.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& json);

// Checks that a resumed run has the configuration and the data that it was started with. Throws UsageError that names
// the difference.
void check_same_run(const std::filesystem::path& directory, const Config& config, const Digest& data);

class Report {
 public:
  // `began` is the start of the reported time. All times are of one monotonic clock.
  Report(const JobOptions& options, const Config& config, RunDirectory& directory, Seconds began);

  // Reports the job as its first worker describes it, and its endpoint. Requires that only events were reported before.
  void begin(const WorkerInfo& about, const std::string& endpoint);
  // The ledger has recorded steps (elastic/ledger/step_facts.h); some steps are reported a little later than they are
  // made. A repetition has no effect.
  void steps(const std::vector<StepFacts>& steps, Seconds now);
  // A worker's summary of a step's tensors for TensorBoard (tools/training/observer.h).
  void shown(int64_t step, std::string_view summary);
  // A worker's heartbeat: shows how far a long evaluation has come.
  void works(PeerId worker, const Work& work, Seconds now);
  void event(const std::string& name, const nlohmann::json& fields, Seconds now = 0);
  nlohmann::json status(Seconds now) const;
  void tell(const std::string& text);         // prints one or more separate lines
  void stop_showing() { progress_.reset(); }  // stops showing progress
  // Reports the end of the run, or of a part of it that stops at a checkpoint of this step. If this step has no
  // checkpoint, `unsaved` tells a person how to go on; otherwise it is empty.
  void end(bool finished, int64_t step, Seconds now, const std::string& unsaved = {});
  void fail(const std::string& reason);
  void keep_result();  // for a part of the run that could not begin: the result of the part before it still holds
  void restore();      // writes metrics.jsonl again if somebody has deleted it

 private:
  void step(const StepFacts& facts, Seconds now);
  void tell_of_audit(const nlohmann::json& found);
  void tell_of_idle_workers(const nlohmann::json& generation);
  void tell_of_hold(const nlohmann::json& hold);

  JobOptions options_;
  Config config_;
  RunDirectory& directory_;
  int64_t steps_ = 0;
  int64_t reported_ = 0;  // the first step that is not reported yet
  bool tokens_ = false;   // the run counts tokens, not samples
  bool accuracy_ = true;  // whether targets are right or wrong
  double loss_ = 0;
  Seconds made_ = 0;                                    // time of the last step
  int64_t generation_ = 0;                              // generation of the last step
  nlohmann::json last_ = nlohmann::json::object();      // the last step and validation, for status()
  int64_t steps_made_ = 0, samples_ = 0, targets_ = 0;  // counted by this process
  std::map<std::string, int64_t> event_counts_;
  Goodput goodput_;
  std::deque<nlohmann::ordered_json> events_;  // the most recent events
  std::optional<Metrics> metrics_;
  std::optional<EventFile> tensorboard_;
  int64_t shown_ = 0;        // the last step of which a worker has shown a summary
  std::set<int64_t> looks_;  // steps with a summary whose facts are not known yet
  std::optional<Progress> progress_;
  struct Evaluation {
    Seconds since = 0, seen = 0;
    int64_t first = 0, part = 0, parts = 0;  // the part at `since`, and now
  };
  std::map<PeerId, Evaluation> evaluations_;  // of workers, since the last step
  int idle_ = 0;                              // workers without a virtual rank in the newest generation
};

}  // namespace elinvar
