#pragma once
// What a run tells of itself: to a person on stdout and stderr, to `ctl status`, and in those files of its
// directory that no process of the job reads again: environment.json, metrics.jsonl, events.jsonl, result.json; and
// config.toml, which a resumed run is compared with.
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

// Bytes that are no UTF-8, as file names may hold, are written as replacement characters.
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& json);

// A resumed run must be the one that was started, on the same data; else UsageError that names what differs.
void check_same_run(const std::filesystem::path& directory, const Config& config, const Digest& data);

class Report {
 public:
  // `began`: when the time that is reported on began. All times are of one clock that does not jump.
  Report(const JobOptions& options, const Config& config, RunDirectory& directory, Seconds began);

  // Before anything else but events: the job as its first worker sees it, and where others find it.
  void begin(const WorkerInfo& about, const std::string& endpoint);
  // The ledger knows of steps (elastic/ledger/step_facts.h), of which some worker tells a little later; a repetition
  // tells nothing new.
  void steps(const std::vector<StepFacts>& steps, Seconds now);
  // A worker's look at the tensors of a step, as TensorBoard takes it (tools/training/observer.h).
  void shown(int64_t step, std::string_view summary);
  void event(const std::string& name, const nlohmann::json& fields, Seconds now = 0);
  nlohmann::json status(Seconds now) const;
  void tell(const std::string& text);         // a line, or several, of its own
  void stop_showing() { progress_.reset(); }  // how far it is
  // Of the whole run, or of a part of it that ends here with a checkpoint.
  void end(bool finished, int64_t step, Seconds now);
  void fail(const std::string& reason);
  void restore();  // writes metrics.jsonl again if somebody has deleted it

 private:
  void step(const StepFacts& facts, Seconds now);
  void tell_of_audit(const nlohmann::json& found);
  void tell_of_hold(const nlohmann::json& hold);

  JobOptions options_;
  Config config_;
  RunDirectory& directory_;
  int64_t steps_ = 0;
  int64_t reported_ = 0;  // the first step that nothing was told of
  bool tokens_ = false;   // are what is counted, not samples
  double loss_ = 0;
  Seconds made_ = 0;                                    // when the last step was,
  int64_t generation_ = 0;                              // and by whom
  nlohmann::json last_ = nlohmann::json::object();      // of the last step and validation, for status()
  int64_t steps_made_ = 0, samples_ = 0, targets_ = 0;  // by this process' account
  std::map<std::string, int64_t> event_counts_;
  Goodput goodput_;
  std::deque<nlohmann::ordered_json> events_;  // the last ones
  std::optional<Metrics> metrics_;
  std::optional<EventFile> tensorboard_;
  int64_t shown_ = 0;        // the last step that a worker has shown something of
  std::set<int64_t> looks_;  // those of which nothing else is known yet
  std::optional<Progress> progress_;
};

}  // namespace elinvar
