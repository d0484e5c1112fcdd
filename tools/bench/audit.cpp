#include "tools/bench/audit.h"

#include <algorithm>
#include <cmath>

#include "tensor/check.h"
#include "tools/bench/elastic_job.h"
#include "tools/bench/job_files.h"
#include "tools/bench/timing.h"
#include "tools/bench/trainer.h"
#include "tools/bench/models.h"
#include "tools/config/model_spec.h"

namespace elinvar::bench {
namespace {

constexpr int kWorkers = 2, kVranks = 4;
constexpr size_t kWarmUp = 3;  // steps
constexpr int kFewest = 5;     // audited ones

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

double rounded(double value) { return std::round(100 * value) / 100; }

}  // namespace

void run_audit(const std::string& network, int repeat, Report& report) {
  const ModelCase& model = model_case(network);
  const Folder folder;
  ElasticJob job(folder.path, config_of(model, folder.path), kWorkers, 1, /*pinned=*/true);
  job.await_steps(kWarmUp);
  const size_t first = job.steps().size();
  job.await_steps(static_cast<size_t>(2 * std::max(repeat, kFewest)));
  std::vector<double> plain, audited;
  for (size_t i = first; i < job.steps().size(); ++i)
    (job.steps()[i].step % 2 == 0 ? audited : plain).push_back(job.steps()[i].time - job.steps()[i - 1].time);
  const double step = median(plain), more = median(audited) - step;
  report.add(network + " audit", more, 0, 0, 0, "",
             {{"step_ms", rounded(1e3 * step)},
              {"leaves", rounded(more / (step * kWorkers / kVranks))},
              {"every_10_percent", rounded(100 * more / step / 10)},
              {"every_100_percent", rounded(100 * more / step / 100)}});
}

}  // namespace elinvar::bench
