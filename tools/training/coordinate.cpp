// `train coordinate`: goes on with a run in the place of its coordinator that is gone.
#include "elastic/run/tenure.h"
#include "tensor/base/check.h"
#include "tools/training/commands.h"

namespace elinvar {

int coordinate(const CoordinateCommand& command) {
  const std::optional<Tenure> gone = newest_tenure(command.run_dir);
  check(gone && gone->number == command.tenure, "{} has no coordinator of tenure {} to take over from", command.run_dir,
        command.tenure);
  RunCommand go_on;
  go_on.config = gone->job.at("file").get<std::string>();
  go_on.run_dir = command.run_dir;
  go_on.resume = true;
  go_on.takes_over = command.tenure;
  go_on.text = gone->job.at("text").get<std::string>();
  go_on.overrides = gone->job.at("overrides").get<std::vector<std::string>>();
  go_on.min_workers = gone->job.at("min_workers").get<int>();
  go_on.any_build = gone->job.value("any_build", false);
  go_on.hold = gone->job.value("hold", go_on.hold);
  if (const auto until = gone->job.find("until"); until != gone->job.end() && !until->is_null())
    go_on.until = until->get<int64_t>();
  go_on.workers = 0;
  go_on.device = gone->job.at("device").get<std::string>();
  go_on.threads = gone->job.at("threads").get<int>();
  go_on.isa = gone->job.at("isa").get<std::string>();
  if (const int port = gone->job.value("metrics_port", -1); port >= 0) go_on.metrics_port = port;
  go_on.metrics_address = gone->job.value("metrics_address", go_on.metrics_address);
  go_on.command_line = command.command_line;
  go_on.listen = command.listen;
  go_on.advertise = command.advertise;
  go_on.key = command.key;
  return run(go_on);
}

}  // namespace elinvar
