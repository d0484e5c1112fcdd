// `join`: takes part in a job as a worker (tools/training/worker.cpp).
#include <CLI/CLI.hpp>
#include <memory>

#include "data/utf8.h"
#include "tools/cli/device_options.h"
#include "tools/cli/standard_streams.h"
#include "tools/launch/commands.h"
#include "tools/launch/self_process.h"

namespace elinvar {
namespace {

struct JoinOptions {
  WorkerOptions worker;
  DeviceOptions device;
};

// Returns what is wrong with a worker's name. Events print it, and `ctl drain` takes it in place of a number.
std::string refusal_of_name(const std::string& name) {
  constexpr size_t kLongest = 200;
  const size_t digits = name.starts_with('-') ? 1 : 0;
  const bool number = name.find_first_not_of("0123456789", digits) == std::string::npos;
  if (!number && name.size() <= kLongest && is_printable(name)) return {};
  return "expected a name, no number, of at most 200 bytes of UTF-8 without control characters";
}

int join_job(JoinOptions& o) {
  outlive_readers();
  o.worker.device = o.device.device;
  o.worker.threads = o.device.threads;
  o.worker.isa = o.device.isa;
  o.worker.offload = o.device.offload;
  o.worker.command_line = own_command_line();
  o.worker.start_coordinator = start_coordinator;
  return join(o.worker);
}

}  // namespace

Command add_join(CLI::App& program) {
  const auto options = std::make_shared<JoinOptions>();
  WorkerOptions& worker = options->worker;
  CLI::App* app = program.add_subcommand("join", "take part in a running job as a further worker");
  app->add_option("endpoint", worker.endpoint, "the job's endpoint, as train run prints it, or its run directory")
      ->required();
  app->add_option("--listen", worker.listen,
                  "where the other workers reach this one (default: a free port of the address from which this host "
                  "reaches the job)");
  app->add_option("--advertise", worker.advertise,
                  "the address under which other hosts find this one (default: as it listens)");
  app->add_option("--key", worker.key, "folder of the job's key");
  app->add_option("--run-dir", worker.run_dir,
                  "where this host sees the run directory; one that does not sends its parts of checkpoints");
  app->add_option("--name", worker.name, "what to call it in events, and for train ctl drain")
      ->check(CLI::Validator(refusal_of_name, ""));
  app->add_option("--set", worker.overrides, "table.key=value: what is different here, as data.path")
      ->take_all()
      ->allow_extra_args(false);
  app->add_flag("--profile{auto}", worker.profile, "as of run: the tenth to the fourteenth step, or others");
  app->add_flag("--local", worker.local)->group("");
  options->device.add_to(*app);
  options->device.add_offload_to(*app);
  return {app, [options] { return join_job(*options); }};
}

}  // namespace elinvar
