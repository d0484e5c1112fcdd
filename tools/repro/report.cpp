// `repro report`: writes the page of a run.
#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tools/cli/output_file.h"
#include "tools/repro/commands.h"
#include "tools/repro/comparison.h"
#include "tools/repro/output.h"
#include "tools/repro/report_data.h"

namespace elinvar {

namespace fs = std::filesystem;

namespace {

struct ReportOptions {
  std::string run, html, verdict, against;
  bool json = false;
};

nlohmann::ordered_json verdict_of(const RunRecord& record, const ReportOptions& options) {
  if (!options.against.empty()) {
    const Comparison comparison = compare(record, RunRecord(options.against));
    nlohmann::ordered_json verdict = to_json(comparison);
    verdict["text"] = to_text(comparison);
    verdict["against"] = options.against;
    return verdict;
  }
  if (options.verdict.empty()) return nullptr;
  auto verdict = parse_json<nlohmann::ordered_json>(read_file(options.verdict));
  check(verdict.is_object() && verdict.contains("verdict"), "{} is not what repro prints of a comparison with --json",
        options.verdict);
  return verdict;
}

int report(const ReportOptions& options) {
  check(options.json || !options.html.empty(), "give --html FILE for the page, or --json for what it shows");
  if (!options.html.empty()) check_output(options.html);
  const RunRecord record(options.run);
  const nlohmann::ordered_json data = report_data(record, verdict_of(record, options));
  if (!options.html.empty()) write_output(options.html, report_page(data));
  if (options.json) {
    print_json(data);
    return 0;
  }
  for (const auto& problem : data["problems"]) fmt::print(stderr, "repro: {}\n", problem.get<std::string>());
  fmt::print("{}\n", fs::absolute(options.html).string());
  return 0;
}

}  // namespace

Command add_report(CLI::App& repro) {
  CLI::App* app = repro.add_subcommand("report", "a page about a run: curves, workers, events, where the time went");
  const auto o = std::make_shared<ReportOptions>();
  app->add_option("RUN", o->run, "a run directory")->required();
  app->add_option("--html", o->html, "where the page goes: one file, which needs nothing else");
  app->add_option("--against", o->against, "show how it compares with this run")->type_name("RUN");
  app->add_option("--verdict", o->verdict, "show this comparison, as repro printed it with --json")
      ->type_name("FILE")
      ->excludes("--against");
  app->add_flag("--json", o->json, "what the page shows as JSON");
  return {app, [o] { return report(*o); }};
}

}  // namespace elinvar
