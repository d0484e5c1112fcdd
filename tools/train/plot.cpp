// `train plot`: draws curves of runs in the terminal.
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <clocale>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <set>

#include "elastic/run/run_record.h"
#include "tensor/base/check.h"
#include "tools/train/chart.h"
#include "tools/train/commands.h"
#include "tools/training/curves.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

struct Metric {
  const char* title;
  double CurvePoint::*value;
  double ValidationPoint::*validation;  // the same value of a validation; null: none
};

const std::map<std::string, Metric>& metrics_of_steps() {
  static const std::map<std::string, Metric> metrics = {
      {"loss", {"loss", &CurvePoint::loss, &ValidationPoint::loss}},
      {"accuracy", {"accuracy", &CurvePoint::accuracy, &ValidationPoint::accuracy}},
      {"lr", {"learning rate", &CurvePoint::lr, nullptr}},
      {"gradient_norm", {"norm of the gradient", &CurvePoint::gradient_norm, nullptr}},
      {"rate", {"samples or tokens a second", &CurvePoint::rate, nullptr}},
      {"reduce_seconds", {"seconds of the reduction", &CurvePoint::reduce_seconds, nullptr}},
      {"workers", {"workers", &CurvePoint::workers, nullptr}},
      {"goodput", {"goodput so far", &CurvePoint::goodput, nullptr}}};
  return metrics;
}

// Returns the names of the metrics that only validations have.
std::set<std::string> metrics_of_validations(const std::vector<Curves>& runs) {
  std::set<std::string> names;
  for (const Curves& run : runs)
    for (const ValidationPoint& point : run.validation)
      for (const auto& [name, value] : point.metrics) names.insert(name);
  return names;
}

Curves curves_of(const fs::path& run) {
  Curves curves;
  const RunRecord record(run);
  (void)record.metrics([&](const nlohmann::json& line) { curves.add(line); });  // damaged lines are left out
  return curves;
}

std::string name_of(const fs::path& run) {
  const fs::path path = fs::absolute(run).lexically_normal();
  return (path.has_filename() ? path.filename() : path.parent_path().filename()).string();
}

int terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? given : 80;
}

bool utf8_terminal() {
  std::setlocale(LC_CTYPE, "");
  return std::string(nl_langinfo(CODESET)) == "UTF-8";
}

struct PlotOptions {
  std::vector<std::string> runs;     // run directories
  std::vector<std::string> metrics;  // empty: loss, accuracy and rate
  int width = 0, height = 12;        // 0: the terminal's width; rows of a chart
  bool ascii = false, logarithmic = false;
};

// Returns the lines of one metric in a run: of its steps, and of its validations.
std::vector<ChartLine> lines_of(const std::string& metric, const std::string& run, const Curves& curves) {
  std::vector<ChartLine> lines;
  const auto found = metrics_of_steps().find(metric);
  const bool of_steps = found != metrics_of_steps().end();
  if (of_steps) {
    lines.push_back({run, {}});
    for (const CurvePoint& p : curves.points) lines.back().points.emplace_back(p.step, p.*found->second.value);
    if (found->second.validation == nullptr) return lines;
  }
  if (curves.validation.empty()) return lines;
  lines.push_back({run + ", validation", {}});
  for (const ValidationPoint& v : curves.validation) {
    const auto own = v.metrics.find(metric);
    lines.back().points.emplace_back(v.step, of_steps                 ? v.*found->second.validation
                                             : own != v.metrics.end() ? own->second
                                                                      : CurvePoint::kNone);
  }
  return lines;
}

bool has_values(const std::vector<ChartLine>& lines) {
  return std::ranges::any_of(lines, [](const ChartLine& line) {
    return std::ranges::any_of(line.points, [](const auto& point) { return std::isfinite(point.second); });
  });
}

int plot(const PlotOptions& command) {
  std::vector<Curves> runs;
  for (const std::string& run : command.runs) runs.push_back(curves_of(run));
  const std::set<std::string> of_validations = metrics_of_validations(runs);
  std::vector<std::string> names = command.metrics;
  for (const std::string& name : names) {
    std::string known;
    for (const auto& [other, metric] : metrics_of_steps()) known += (known.empty() ? "" : ", ") + other;
    for (const std::string& other : of_validations) known += ", " + other;
    check(metrics_of_steps().contains(name) || of_validations.contains(name), "--metric: expected one of {}, got '{}'",
          known, name);
  }
  if (names.empty()) {
    names = {"loss", "accuracy"};
    names.insert(names.end(), of_validations.begin(), of_validations.end());
    names.emplace_back("rate");
  }
  const ChartStyle style{.columns = command.width > 0 ? command.width : terminal_columns(),
                         .rows = command.height,
                         .ascii = command.ascii || !utf8_terminal(),
                         .colours = isatty(STDOUT_FILENO) == 1,
                         .logarithmic = command.logarithmic};
  for (const std::string& name : names) {
    std::vector<ChartLine> lines;
    for (size_t r = 0; r < runs.size(); ++r)
      std::ranges::move(lines_of(name, name_of(command.runs[r]), runs[r]), std::back_inserter(lines));
    if (command.metrics.empty() && name == "accuracy" && !has_values(lines)) continue;  // the task has none
    const auto metric = metrics_of_steps().find(name);
    const std::string title = metric != metrics_of_steps().end() ? metric->second.title : name;
    fmt::print("{}", chart(title + " by step", lines, style));
  }
  return 0;
}

}  // namespace

Command add_plot(CLI::App& program) {
  const auto options = std::make_shared<PlotOptions>();
  CLI::App* app = program.add_subcommand("plot", "curves of runs, in the terminal");
  app->add_option("runs", options->runs, "run directories, drawn over each other")->required();
  app->add_option("--metric", options->metrics,
                  "loss, accuracy, lr, gradient_norm, rate, reduce_seconds, workers, goodput, or a metric of "
                  "validations such as auc; several: a chart each (default: loss, those of validations, and rate)")
      ->take_all()
      ->allow_extra_args(false);
  app->add_flag("--log", options->logarithmic, "a logarithmic vertical axis");
  app->add_option("--width", options->width, "columns (default: the terminal's)")
      ->check(CLI::Range(24, 1000).description(""));
  app->add_option("--height", options->height, "rows of a chart")
      ->check(CLI::Range(3, 200).description(""))
      ->capture_default_str();
  app->add_flag("--ascii", options->ascii, "letters instead of braille dots, as where the locale is not UTF-8");
  return {app, [options] { return plot(*options); }};
}

}  // namespace elinvar
