#pragma once
// Profiling: measures what the speed and cost models learn from as jobs run, and compares each speed with what was
// predicted of it when the job was given its workers.
#include <map>
#include <optional>
#include <string>

#include "tools/pool/daemon/run_status.h"
#include "tools/pool/store/store.h"

namespace elinvar::pool {

// The speed that the model gave for what a plan gave a job.
struct Prediction {
  Allocation allocation;
  WorkerShape shape;
  double rate = 0;  // samples a second; 0: the model knew nothing, or the job had these workers already
  double error = 0;
  bool trial = false;  // the job has these workers only so that their speed becomes known
};

class Profiler {
 public:
  explicit Profiler(Store& store) : store_(store) {}

  bool predicted(Id job, const Allocation& allocation, const WorkerShape& shape) const;
  void predict(Id job, Prediction prediction);  // replaces the one before

  // Takes in what a running job's directory shows; `allocation`: its workers, where all of them are known and stay.
  // Saves costs and measurements. Returns whether there is the first measurement of a generation, so that a new plan
  // is due.
  bool observe(JobRecord& job, const RunStatus& status, const std::optional<Allocation>& allocation, double now);

  // Notes that a worker of this kind ran out of memory with `alike` workers of its kind.
  void ran_out_of_memory(const JobRecord& job, const ProcessRecord& worker, const std::string& kind, int alike);

  void stopped(Id job, bool keeps_prediction);  // the job runs no more, or it restarts in another worker shape
  void clock_was_set_back();

 private:
  struct Profile {  // of a job
    std::optional<Prediction> prediction;
    int64_t predicted_generation = 0;  // in which the prediction is compared; 0: not measured yet
    bool compared = false;             // for long enough
    std::optional<double> measured_at;
    int64_t measured_generation = 0;
    std::string readers;  // what a worker decided last about those who read its data
  };
  void note_readers(const JobRecord& job, const RunStatus& status, double now);
  void measure_start_and_validations(JobRecord& job, const RunStatus& status);
  void measure_rescale_costs(JobRecord& job, const RunStatus& status, double now);
  void compare(const JobRecord& job, const Measurement& measurement, double now);

  Store& store_;
  std::map<Id, Profile> profiles_;
};

}  // namespace elinvar::pool
