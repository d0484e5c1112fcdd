// train: the command that trains, scores and samples. Exit codes: 0 done, 2 wrong usage or configuration, 3 a failure
// at run time.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "tensor/base/threads.h"
#include "tensor/stream.h"
#include "tools/cli/device_options.h"
#include "tools/cli/main_program.h"
#include "tools/cli/number_from.h"
#include "tools/cli/standard_streams.h"
#include "tools/train/commands.h"

namespace {

int train_program(int argc, char** argv) {
  CLI::App app("Trains neural networks whose bits do not depend on the machine.", "train");
  app.set_version_flag("--version", "train " ELINVAR_VERSION);
  app.require_subcommand(1);
  elinvar::DeviceOptions device;

  elinvar::RunCommand run_options;
  run_options.command_line.assign(argv, argv + argc);
  int64_t steps = 0;
  std::string numerics;
  CLI::App* run = app.add_subcommand("run", "train a network as a configuration says (tools/CONFIG.md)");
  run->add_option("config", run_options.config, "the configuration, a .toml file")->required();
  run->add_option("--run-dir", run_options.run_dir, "where the run is kept (default: runs/<run.name>)");
  run->add_option("--numerics", numerics,
                  "portable: the same bits on every device; fast: on tensor cores, those of one kind of GPU")
      ->check(CLI::IsMember({"portable", "fast"}));
  run->add_flag("--resume", run_options.resume, "go on from the newest good checkpoint of the run directory");
  run->add_option("--steps", steps, "train this many steps, whatever the configuration says")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31).description(""));
  run->add_option("--set", run_options.overrides, "table.key=value: overrides one key of the configuration")
      ->take_all()
      ->allow_extra_args(false);
  run->add_option("--replay", run_options.replay,
                  "a run directory: do that run again, with its batches; each line of the ledger must be equal");
  run->add_option("--until", run_options.until, "stop soon after this step, with a checkpoint, as train ctl stop does")
      ->check(CLI::PositiveNumber.description(""));
  run->add_option("--metrics-port", run_options.metrics_port,
                  "serve numbers for Prometheus at http://127.0.0.1:PORT/metrics; 0: any port, which is printed")
      ->check(CLI::Range(0, 65535).description(""));
  run->add_option("--metrics-address", run_options.metrics_address,
                  "the address of this host to serve them at (default 127.0.0.1); whoever reaches it can read them");
  run->add_option("--workers", run_options.workers, "worker processes to start here (default 1); 0: others will join")
      ->check(CLI::Range(0, 1024).description(""));
  run->add_option("--min-workers", run_options.min_workers, "with fewer the job holds until others join (default 1)")
      ->check(CLI::Range(1, 1024).description(""));
  run->add_option("--hold", run_options.hold,
                  "where all workers are silent: seconds to wait for one of them before the run ends with exit code 3; "
                  "and, but at least 15, that a worker waits for a coordinator")
      ->check(elinvar::number_from(1, 1e6))
      ->capture_default_str();
  run->add_flag("--any-build", run_options.any_build,
                "take workers of another build of this program without their repeating the first updates of the run");
  run->add_option("--listen", run_options.listen, "where workers reach the job: tcp://ADDRESS:PORT or ipc://PATH")
      ->capture_default_str();
  run->add_option("--advertise", run_options.advertise, "the address under which other hosts find this one");
  run->add_option("--key", run_options.key, "folder of the job's key (train keygen); needed beyond this host");
  run->add_option("--chaos", run_options.chaos,
                  "faults for a drill, as kill:worker=1,step=17;random:seed=7,rate=0.05 (elastic/session/chaos.h)");
  run->add_flag("--profile{auto}", run_options.profile,
                "trace some steps, and print where their time goes: the tenth to the fourteenth, or --profile=100-104");
  device.add_to(*run);

  elinvar::JoinCommand join_options;
  join_options.command_line.assign(argv, argv + argc);
  CLI::App* join = app.add_subcommand("join", "take part in a running job as a further worker");
  join->add_option("endpoint", join_options.endpoint,
                   "the job's endpoint, as train run prints it, or its run directory")
      ->required();
  join->add_option("--listen", join_options.listen, "where the other workers reach this one")->capture_default_str();
  join->add_option(
      "--advertise", join_options.advertise,
      "the address under which other hosts find this one (default: the one from which it reaches the job)");
  join->add_option("--key", join_options.key, "folder of the job's key");
  join->add_option("--run-dir", join_options.run_dir,
                   "where this host sees the run directory; one that does not sends its parts of checkpoints");
  join->add_option("--name", join_options.name, "what to call it in events, and for train ctl drain");
  join->add_option("--set", join_options.overrides, "table.key=value: what is different here, as data.path")
      ->take_all()
      ->allow_extra_args(false);
  join->add_flag("--profile{auto}", join_options.profile,
                 "as of train run: the tenth to the fourteenth step, or others");
  join->add_flag("--local", join_options.local)->group("");
  device.add_to(*join);

  elinvar::CoordinateCommand coordinate_options;
  coordinate_options.command_line.assign(argv, argv + argc);
  CLI::App* coordinate = app.add_subcommand("coordinate", "go on in the place of a run's coordinator that is gone");
  coordinate->group("");  // workers start it
  coordinate->add_option("run_dir", coordinate_options.run_dir)->required();
  coordinate->add_option("--tenure", coordinate_options.tenure)->required();
  coordinate->add_option("--listen", coordinate_options.listen);
  coordinate->add_option("--advertise", coordinate_options.advertise);
  coordinate->add_option("--key", coordinate_options.key);

  elinvar::CtlCommand ctl_options;
  CLI::App* ctl = app.add_subcommand("ctl", "ask a running job for its status, or for a change");
  ctl->add_option("job", ctl_options.job, "its run directory or endpoint")->required();
  ctl->add_option("what", ctl_options.what, "status, scale, drain, checkpoint or stop")
      ->required()
      ->check(CLI::IsMember({"status", "scale", "drain", "checkpoint", "stop"}).description(""));
  ctl->add_option("which", ctl_options.which, "scale: so many workers; drain: the worker's number or name");
  ctl->add_flag("--watch", ctl_options.watch, "status: every second, until the job is over");
  ctl->add_flag("--json", ctl_options.json, "the answer as JSON");
  ctl->add_option("--key", ctl_options.key, "folder of the job's key");

  elinvar::PlotCommand plot_options;
  CLI::App* plot = app.add_subcommand("plot", "curves of runs, in the terminal");
  plot->add_option("runs", plot_options.runs, "run directories, drawn over each other")->required();
  plot->add_option("--metric", plot_options.metrics,
                   "loss, accuracy, lr, gradient_norm, rate, reduce_seconds, workers or goodput; several: a chart each "
                   "(default: loss, accuracy and rate)")
      ->take_all()
      ->allow_extra_args(false);
  plot->add_flag("--log", plot_options.logarithmic, "a logarithmic vertical axis");
  plot->add_option("--width", plot_options.width, "columns (default: the terminal's)")
      ->check(CLI::Range(24, 1000).description(""));
  plot->add_option("--height", plot_options.height, "rows of a chart")
      ->check(CLI::Range(3, 200).description(""))
      ->capture_default_str();
  plot->add_flag("--ascii", plot_options.ascii, "letters instead of braille dots, as where the locale is not UTF-8");

  elinvar::EvalCommand eval_options;
  CLI::App* eval = app.add_subcommand("eval", "loss and accuracy of a run's newest checkpoint");
  eval->add_option("run_dir", eval_options.run_dir, "a run directory")->required();
  eval->add_option("--split", eval_options.split, "validation or test")
      ->check(CLI::IsMember({"validation", "test"}))
      ->capture_default_str();
  eval->add_flag("--mirror", eval_options.mirror,
                 "of images: by the mean of the logits of each and its mirror image (test-time augmentation)");
  eval->add_option("--confusion", eval_options.confusion,
                   "of images: a .csv file to write, how often each class was taken for each");
  eval->add_flag("--json", eval_options.json, "the score as JSON");
  device.add_to(*eval);

  elinvar::ProfileCommand profile_options;
  CLI::App* profile = app.add_subcommand("profile", "where the time of a run's steps went, after train run --profile");
  profile->add_option("run_dir", profile_options.run_dir, "a run directory")->required();

  elinvar::SampleCommand sample_options;
  CLI::App* sample = app.add_subcommand("sample", "text from a run's newest checkpoint");
  sample->add_option("run_dir", sample_options.run_dir, "a run directory")->required();
  sample->add_option_function<std::string>(
      "--prompt", [&](const std::string& text) { sample_options.prompt = text; },
      "what the text starts with (default: read from stdin)");
  sample->add_option("--tokens", sample_options.tokens, "at most so many tokens are added")
      ->check(CLI::Range(0, 1000000).description(""))
      ->capture_default_str();
  sample->add_option("--count", sample_options.count, "how many texts")
      ->check(CLI::Range(1, 1000000).description(""))
      ->capture_default_str();
  elinvar::Sampling& sampling = sample_options.sampling;
  sample->add_option("--temperature", sampling.temperature, "0: always the likeliest token; 1: as the network says")
      ->check(elinvar::number_from(0, 100))
      ->capture_default_str();
  sample->add_option("--top-k", sampling.top_k, "only among so many likeliest tokens; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  sample->add_option("--top-p", sampling.top_p, "only among the fewest likeliest that have this share of the whole")
      ->check(elinvar::number_from(0, 1))
      ->capture_default_str();
  sample
      ->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "above 1: tokens that are seen become less likely")
      ->check(elinvar::number_from(0.01, 100))
      ->capture_default_str();
  sample->add_flag("!--no-cache", sample_options.cached,
                   "compute all tokens again for each one: the same text, slowly");
  sample->add_flag("--json", sample_options.json, "a line of JSON for each text");
  sample->add_option("--seed", sample_options.seed, "another number, another text")->capture_default_str();
  device.add_to(*sample);

  elinvar::ImportCommand import_options;
  CLI::App* import_weights = app.add_subcommand("import", "begin a run with weights from elsewhere");
  import_weights
      ->add_option(
          "weights", import_options.weights,
          "model.safetensors as torchvision's and Hugging Face's models save it, the index of several, or a folder")
      ->required();
  import_weights->add_option("config", import_options.config, "the configuration, a .toml file")->required();
  import_weights->add_option("run_dir", import_options.run_dir, "the run directory to make")->required();
  import_weights
      ->add_option("--except", import_options.except,
                   "parameters that stay as in a new network, as \"fc.*\" for another number of classes")
      ->allow_extra_args(false);
  import_weights
      ->add_option("--set", import_options.overrides, "table.key=value: overrides one key of the configuration")
      ->allow_extra_args(false);

  elinvar::ExportCommand export_options;
  CLI::App* export_weights = app.add_subcommand("export", "write the weights of a run's newest checkpoint for others");
  export_weights->add_option("run_dir", export_options.run_dir, "a run directory")->required();
  export_weights->add_option("out", export_options.out, "the file to write, model.safetensors")->required();

  CLI::App* devices = app.add_subcommand("devices", "what this machine computes with");

  std::string key_folder;
  CLI::App* keygen = app.add_subcommand("keygen", "make the key that all processes of a job share");
  keygen->add_option("folder", key_folder, "where to put it; made if absent")->required();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  if (*devices) return elinvar::devices();
  if (*keygen) return elinvar::keygen(key_folder);
  if (*ctl) return elinvar::ctl(ctl_options);
  if (*plot) return elinvar::plot(plot_options);
  if (*import_weights) return elinvar::import_weights(import_options);
  if (*profile) return elinvar::show_profile(profile_options);
  if (*export_weights) return elinvar::export_weights(export_options);
  if (*run || *join || *coordinate) elinvar::outlive_readers();
  if (*coordinate) return elinvar::coordinate(coordinate_options);
  device.apply();
  join_options.device = eval_options.device = sample_options.device = elinvar::parse_device(device.device);
  if (*join) return elinvar::join(join_options);
  if (*eval) return elinvar::eval(eval_options);
  if (*sample) return elinvar::sample(sample_options);
  if (!numerics.empty()) run_options.overrides.push_back("run.numerics=\"" + numerics + "\"");
  if (steps > 0) {
    run_options.overrides.push_back("run.epochs=0");
    run_options.overrides.push_back("run.steps=" + std::to_string(steps));
  }
  run_options.device = device.device;
  run_options.isa = device.isa;
  run_options.threads =
      device.threads > 0 ? device.threads : std::max(1, elinvar::usable_threads() / std::max(1, run_options.workers));
  return elinvar::run(run_options);
}

}  // namespace

int main(int argc, char** argv) {
  return elinvar::main_program("train", [&] { return train_program(argc, argv); });
}
