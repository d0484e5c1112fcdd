#pragma once
// Takes the measurements from which the speed and cost models learn while jobs run, and compares measured speeds with
// predictions.
#include <map>
#include <optional>
#include <string>

#include "tools/pool/daemon/run_status.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

// The predicted speed of a job on the allocation that a plan gave it.
struct Prediction {
  Allocation allocation;
  WorkerShape shape;
  double rate = 0;  // samples per second; 0: the model knew nothing, or the job already had these workers
  double error = 0;
  bool trial = false;  // the allocation is for a measurement only
};

class Profiler {
 public:
  explicit Profiler(Store& store) : store_(store) {}

  bool predicted(Id job, const Allocation& allocation, const WorkerShape& shape) const;
  void predict(Id job, Prediction prediction);  // replaces the previous prediction

  // Evaluates the run status of a running job. `allocation`: its workers, if all are registered and none is leaving.
  // Saves costs and measurements. Returns whether this was the first measurement of a generation, which calls for a new
  // plan.
  bool observe(JobRecord& job, const RunStatus& status, const std::optional<Allocation>& allocation, double now);

  // Records that a worker of this kind ran out of memory when the job had `alike` workers of the kind.
  void ran_out_of_memory(const JobRecord& job, const ProcessRecord& worker, const std::string& kind, int alike);

  void stopped(Id job, bool keeps_prediction);  // the job stopped, or restarts in another worker shape
  void clock_was_set_back();

 private:
  struct Profile {  // per job
    std::optional<Prediction> prediction;
    int64_t predicted_generation = 0;  // generation in which the prediction is compared; 0: not measured yet
    bool compared = false;             // compared over a long enough time
    std::optional<double> measured_at;
    int64_t measured_generation = 0;
    std::string readers;  // the workers' last decision about reader threads
  };
  void note_readers(const JobRecord& job, const RunStatus& status, double now);
  void measure_start_and_validations(JobRecord& job, const RunStatus& status);
  void measure_rescale_costs(JobRecord& job, const RunStatus& status, double now);
  void compare(const JobRecord& job, const Measurement& measurement, double now);

  Store& store_;
  std::map<Id, Profile> profiles_;
};

}  // namespace elinvar::pool
