// Continues a run in place of its coordinator that is gone, with the options that the run directory records.
#include <nlohmann/json.hpp>

#include "comm/fields.h"
#include "elastic/run/term.h"
#include "tensor/base/check.h"
#include "tools/training/elastic_job.h"

namespace elinvar {

int take_over(const TakeoverOptions& options) {
  const std::optional<Term> gone = newest_term(options.run_dir);
  check(gone && gone->number == options.term, "{} has no coordinator of term {} to take over from", options.run_dir,
        options.term);
  const nlohmann::json& job = *gone->job;
  JobOptions go_on;
  go_on.config = job.at("file").get<std::string>();
  go_on.run_dir = options.run_dir;
  go_on.resume = true;
  go_on.takes_over = options.term;
  go_on.text = job.at("text").get<std::string>();
  go_on.overrides = job.at("overrides").get<std::vector<std::string>>();
  go_on.min_workers = job.at("min_workers").get<int>();
  go_on.any_build = job.value("any_build", false);
  go_on.arrangement.zero = job.value("zero", 0);
  go_on.arrangement.tp = job.value("tp", 1);
  go_on.arrangement.pp = job.value("pp", 1);
  go_on.arrangement.copies = job.value("copies", go_on.arrangement.copies);
  if (const auto forecasts = job.find("forecasts"); forecasts != job.end())
    go_on.forecasts = read_fields<ArrangementForecasts>(*forecasts);
  go_on.hold = job.value("hold", go_on.hold);
  if (const auto until = job.find("until"); until != job.end() && !until->is_null())
    go_on.until = until->get<int64_t>();
  go_on.workers = 0;
  go_on.device = job.at("device").get<std::string>();
  go_on.threads = job.at("threads").get<int>();
  go_on.isa = job.at("isa").get<std::string>();
  go_on.offload = job.value("offload", go_on.offload);
  if (const int port = job.value("metrics_port", -1); port >= 0) go_on.metrics_port = port;
  go_on.metrics_address = job.value("metrics_address", go_on.metrics_address);
  go_on.command_line = options.command_line;
  go_on.listen = options.listen;
  go_on.advertise = options.advertise;
  go_on.key = options.key;
  go_on.start_worker = options.start_worker;
  return run(go_on);
}

}  // namespace elinvar
