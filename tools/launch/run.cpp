// `run` trains a configuration, as the coordinator of a job (tools/training/run.cpp); `resume` goes on with a run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "nn/offload.h"
#include "tools/cli/device_options.h"
#include "tools/cli/number_from.h"
#include "tensor/base/check.h"
#include "tools/cli/standard_streams.h"
#include "tools/launch/commands.h"
#include "tools/launch/dry_run.h"
#include "tools/launch/self_process.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

struct RunOptions {
  JobOptions job;
  DeviceOptions device;
  int64_t steps = 0;
  std::string numerics, arrangement;
  bool dry = false;
  DryRunOptions predicted = {};
  double memory = 0;  // bytes
  CLI::Option* workers = nullptr;
};

// With the number of model replicas (dp) the arrangement also says how many workers there are.
void read_arrangement(RunOptions& o) {
  Arrangement& arrangement = o.job.arrangement;
  const int dp = elinvar::read_arrangement(o.arrangement, arrangement);
  if (dp == 0) return;
  const int workers = dp * arrangement.replica();
  check(o.workers->count() == 0 || o.job.workers == workers, "--arrangement {} has {} workers, but --workers is {}",
        o.arrangement, workers, o.job.workers);
  o.job.workers = workers;
}

Config config_of(const JobOptions& job) {
  return job.text.empty() ? read_config(job.config, job.overrides) : parse_config(job.text, job.config, job.overrides);
}

// Predictions are for as many threads as each of the workers will have here.
void prepare_prediction(RunOptions& o) {
  check(o.job.workers > 0,
        "--workers 0 leaves open how many workers there will be, for which arrangements are compared");
  o.predicted.workers = o.job.workers;
  o.predicted.memory = static_cast<int64_t>(o.memory);
  o.predicted.transport.listen = o.job.listen;
  if (!o.job.key.empty()) o.predicted.transport.key = JobKey::load(o.job.key);
  o.predicted.device = o.device;
  int& threads = o.predicted.device.threads;
  if (threads == 0) threads = std::max(1, usable_threads() / o.job.workers);
}

// Replaces "auto" by the fastest arrangement that fits; the job changes it when workers come and go. How many workers
// may die is not its choice.
void choose_arrangement(RunOptions& o) {
  prepare_prediction(o);
  o.predicted.copies = {o.job.arrangement.copies};
  ChosenArrangement chosen = elinvar::choose_arrangement(config_of(o.job), o.predicted);
  o.job.arrangement = chosen.arrangement;
  o.job.forecasts = std::move(chosen.forecasts);
}

int start(RunOptions& o) {
  outlive_readers();
  if (!o.numerics.empty()) o.job.overrides.push_back("run.numerics=\"" + o.numerics + "\"");
  if (o.steps > 0) {
    o.job.overrides.push_back("run.epochs=0");
    o.job.overrides.push_back("run.steps=" + std::to_string(o.steps));
  }
  if (o.dry) {
    check(o.arrangement.empty() || o.arrangement == "auto",
          "--dry-run compares all arrangements; train check tells what one of them needs");
    prepare_prediction(o);
    return dry_run(config_of(o.job), o.predicted);
  }
  check(!o.predicted.json, "--json is for --dry-run");
  if (o.arrangement == "auto") choose_arrangement(o);
  else read_arrangement(o);
  o.device.apply();
  (void)parse_offload(o.device.offload, parse_device(o.device.device));  // reports errors before anything starts
  o.job.device = o.device.device;
  o.job.isa = o.device.isa;
  o.job.offload = o.device.offload;
  o.job.threads = o.device.threads;
  o.job.command_line = own_command_line();
  o.job.start_worker = start_worker;
  return run(o.job);
}

// Goes on from the newest good checkpoint. Everything that decides the result is in the run directory.
int resume(RunOptions& o) {
  JobOptions& job = o.job;
  job.text = to_toml(read_run_config(job.run_dir));
  job.config = (std::filesystem::path(job.run_dir) / "config.toml").string();
  job.resume = true;
  return start(o);
}

// Options that decide who trains where, and no bit of the result.
void add_shared_options(CLI::App& app, RunOptions& o) {
  JobOptions& job = o.job;
  app.add_option("--until", job.until, "stop soon after this step, with a checkpoint, as ctl stop does")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31).description(""));
  app.add_option("--metrics-port", job.metrics_port,
                 "serve numbers for Prometheus at http://127.0.0.1:PORT/metrics; 0: any port, which is printed")
      ->check(CLI::Range(0, 65535).description(""));
  app.add_option("--metrics-address", job.metrics_address,
                 "the address of this host to serve them at (default 127.0.0.1); whoever reaches it can read them");
  o.workers =
      app.add_option("--workers", job.workers, "worker processes to start here (default 1); 0: others will join")
          ->check(CLI::Range(0, 1024).description(""));
  app.add_option("--min-workers", job.min_workers, "with fewer the job holds until others join (default 1)")
      ->check(CLI::Range(1, 1024).description(""));
  app.add_option(
      "--arrangement", o.arrangement,
      "how state and work are divided among workers, as dp=2,tp=2,zero=1: zero=1 shards the optimizer's state, "
      "zero=2 gradients too, zero=3 parameters too; up to tp workers compute a gradient together, if the network has "
      "so many virtual shards, and up to pp groups of them one after another, each some of its segments; dp times as "
      "many are started (elastic/ARRANGEMENT.md). auto: the one of --workers that --dry-run predicts to be the fastest "
      "and to fit into --memory, and others when workers come or go. No bit of the result depends on it");
  app.add_option(
         "--copies", job.arrangement.copies,
         "with zero=1 or 2, the number of workers that keep each part of the optimizer's state: while one of them "
         "lives it is not lost (default 2)")
      ->check(CLI::Range(1, 1024).description(""));
  const auto sizes = CLI::AsNumberWithUnit(
      std::map<std::string, double>{
          {"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"MiB", 0x1p20}, {"GiB", 0x1p30}},
      CLI::AsNumberWithUnit::DEFAULT, "BYTES");
  const auto times = CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}},
                                           CLI::AsNumberWithUnit::DEFAULT, "SECONDS");
  app.add_option("--memory", o.memory,
                 "for predictions: memory of a worker, as 80GB; on a GPU that of the GPU (default: all of it, or an "
                 "equal share of this machine's)")
      ->transform(sizes)
      ->check(number_from(1, 1e18));
  app.add_option(
         "--bandwidth", o.predicted.bandwidth,
         "for predictions: bytes that a worker sends in a second (default: measured between two processes here)")
      ->transform(sizes)
      ->check(number_from(1, 1e18));
  app.add_option("--latency", o.predicted.latency,
                 "for predictions: time that a small message takes (default: measured between two processes here)")
      ->transform(times)
      ->check(number_from(0, 1e6));
  app.add_option("--hold", job.hold,
                 "where all workers are silent, or none has come yet: seconds to wait for one of them before the run "
                 "ends with exit code 3; and, but at least 15, that a worker waits for a coordinator")
      ->check(number_from(1, 1e6))
      ->capture_default_str();
  app.add_flag("--any-build", job.any_build,
               "take workers of another build of this program without their repeating the first updates of the run");
  app.add_option("--listen", job.listen, "where workers reach the job: tcp://ADDRESS:PORT or ipc://PATH")
      ->capture_default_str();
  app.add_option("--advertise", job.advertise, "the address under which other hosts find this one");
  app.add_option("--key", job.key, "folder of the job's key (train keygen); needed beyond this host");
  app.add_option("--chaos", job.chaos,
                 "faults to inject, as kill:worker=1,step=17;random:seed=7,rate=0.05 (elastic/session/chaos.h)");
  app.add_flag("--profile{auto}", job.profile,
               "trace some steps, and print where their time goes: the tenth to the fourteenth, or --profile=100-104");
  o.device.add_to(app);
  o.device.add_offload_to(app);
}

}  // namespace

Command add_run(CLI::App& program) {
  const auto options = std::make_shared<RunOptions>();
  JobOptions& job = options->job;
  CLI::App* app = program.add_subcommand("run", "train a network as a configuration says (tools/CONFIG.md)");
  app->add_option("config", job.config, "the configuration, a .toml file")->required();
  app->add_option("--run-dir", job.run_dir, "where the run is kept (default: runs/<run.name>)");
  app->add_option("--numerics", options->numerics,
                  "portable: float32, the same bits on every device; exact: factors of 14 bits, also the same bits "
                  "everywhere; fast: on tensor cores, the bits of one kind of GPU")
      ->check(CLI::IsMember({"portable", "exact", "fast"}));
  app->add_flag("--resume", job.resume, "go on from the newest good checkpoint of the run directory");
  app->add_option("--steps", options->steps, "train this many steps, whatever the configuration says")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31).description(""));
  app->add_option("--set", job.overrides, "table.key=value: overrides one key of the configuration")
      ->take_all()
      ->allow_extra_args(false);
  app->add_option("--replay", job.replay,
                  "a run directory: do that run again, with its batches; each line of the ledger must be equal");
  app->add_flag("--dry-run", options->dry,
                "print which arrangements --workers could have, with predicted times and memory, and train nothing; "
                "exit code 1 if none fits");
  app->add_flag("--json", options->predicted.json, "with --dry-run: one JSON object");
  add_shared_options(*app, *options);
  return {app, [options] { return start(*options); }};
}

Command add_resume(CLI::App& program) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* app = program.add_subcommand("resume", "go on with a run, from its newest good checkpoint");
  app->add_option("run_dir", options->job.run_dir, "the run's directory")->required();
  app->add_option("--set", options->job.overrides,
                  "table.key=value: overrides one key, of those that do not decide the result, as run.log_every")
      ->take_all()
      ->allow_extra_args(false);
  add_shared_options(*app, *options);
  return {app, [options] { return resume(*options); }};
}

}  // namespace elinvar
