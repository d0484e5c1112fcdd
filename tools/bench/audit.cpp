#include "tools/bench/audit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/base/check.h"
#include "tools/bench/elastic_job.h"
#include "tools/bench/job_files.h"
#include "tools/bench/models.h"
#include "tools/peak/timing.h"
#include "tools/bench/trainer.h"
#include "tools/config/spec_toml.h"

namespace elinvar::bench {
namespace {

constexpr int kWorkers = 2, kVranks = 4;
constexpr size_t kWarmUp = 3;  // steps
constexpr int kFewest = 5;     // audited steps

std::string config_of(const ModelCase& model, const std::string& folder) {
  std::string text = fmt::format(
      "[run]\nsteps = 1000000\nbatch_size = {}\nvirtual_ranks = {}\nstate_digest_every = 0\ncheckpoint_every = 0\n"
      "audit_every = 2\n{}",
      model.batch, kVranks, model_spec_to_toml(model.spec));
  if (!model.is_text())
    return text + fmt::format(
                      "[data]\nkind = \"synthetic\"\nsize = 1024\nclasses = {}\nimage_size = {}\n"
                      "[optimizer]\nkind = \"sgd\"\nlr = 1e-3\n",
                      model.classes, model.sample[0]);
  write_text(folder + "/text", model.classes, 200000);
  return text + fmt::format(
                    "[data]\nkind = \"text\"\npath = \"{}/text\"\ntokens = \"character\"\ncontext = {}\n"
                    "[optimizer]\nkind = \"adamw\"\nlr = 1e-4\n",
                    folder, model.sample[0]);
}

// Times of steps, and the processor time that all workers together used for them.
struct Steps {
  std::vector<double> times, work;
};

}  // namespace

void run_audit(const std::string& network, int repeat, Report& report) {
  const ModelCase& model = model_case(network);
  const Folder folder;
  ElasticJob job(folder.path, config_of(model, folder.path), kWorkers, 1, /*pinned=*/true);
  job.await_steps(kWarmUp);
  const std::vector<ElasticJob::Worker> workers = job.workers();
  const auto computed = [&] {
    double seconds = 0;
    for (const ElasticJob::Worker& worker : workers)
      for (const auto& [thread, of_thread] : processor_seconds(worker.pid)) seconds += of_thread;
    return seconds;
  };
  Steps plain, audited;
  const auto wanted = static_cast<size_t>(std::max(repeat, kFewest));
  job.await_steps(1);
  double before = computed();
  for (size_t seen = job.steps().size(); std::min(plain.times.size(), audited.times.size()) < wanted;) {
    job.await_steps(1);
    const double now = computed(), work = now - std::exchange(before, now);
    const size_t last = job.steps().size() - 1;
    if (std::exchange(seen, last + 1) != last) continue;  // two steps at once: their work cannot be separated
    Steps& steps = job.steps()[last].step % 2 == 0 ? audited : plain;
    steps.times.push_back(job.steps()[last].time - job.steps()[last - 1].time);
    steps.work.push_back(work);
  }
  const double time = median(plain.times), more_time = median(audited.times) - time;
  const double work = median(plain.work), more_work = median(audited.work) - work;
  report.add(network + " audit", more_time, 0, 0, 0, "",
             {{"step_ms", rounded(1e3 * time)},
              {"every_10_percent", rounded(100 * more_time / time / 10)},
              {"every_100_percent", rounded(100 * more_time / time / 100)},
              {"work_ms", rounded(1e3 * work)},
              {"work_leaves", rounded(kVranks * more_work / work)},
              {"work_every_10_percent", rounded(100 * more_work / work / 10)}});
}

}  // namespace elinvar::bench
