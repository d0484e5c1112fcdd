// `train plot`: draws curves of runs in the terminal.
#include <langinfo.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

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

const Metric& metric_named(const std::string& name) {
  static const std::map<std::string, Metric> metrics = {
      {"loss", {"loss", &CurvePoint::loss, &ValidationPoint::loss}},
      {"accuracy", {"accuracy", &CurvePoint::accuracy, &ValidationPoint::accuracy}},
      {"lr", {"learning rate", &CurvePoint::lr, nullptr}},
      {"gradient_norm", {"norm of the gradient", &CurvePoint::gradient_norm, nullptr}},
      {"rate", {"samples or tokens a second", &CurvePoint::rate, nullptr}},
      {"reduce_seconds", {"seconds of the reduction", &CurvePoint::reduce_seconds, nullptr}},
      {"workers", {"workers", &CurvePoint::workers, nullptr}},
      {"goodput", {"goodput so far", &CurvePoint::goodput, nullptr}}};
  const auto found = metrics.find(name);
  std::string known;
  for (const auto& [other, metric] : metrics) known += (known.empty() ? "" : ", ") + other;
  check(found != metrics.end(), "--metric: expected one of {}, got '{}'", known, name);
  return found->second;
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

int plot(const PlotOptions& command) {
  std::vector<std::string> names = command.metrics;
  if (names.empty()) names = {"loss", "accuracy", "rate"};
  std::vector<Metric> metrics;
  for (const std::string& name : names) metrics.push_back(metric_named(name));
  std::vector<Curves> runs;
  for (const std::string& run : command.runs) runs.push_back(curves_of(run));
  const ChartStyle style{.columns = command.width > 0 ? command.width : terminal_columns(),
                         .rows = command.height,
                         .ascii = command.ascii || !utf8_terminal(),
                         .colours = isatty(STDOUT_FILENO) == 1,
                         .logarithmic = command.logarithmic};
  for (const Metric& metric : metrics) {
    std::vector<ChartLine> lines;
    for (size_t r = 0; r < runs.size(); ++r) {
      lines.push_back({name_of(command.runs[r]), {}});
      for (const CurvePoint& p : runs[r].points) lines.back().points.emplace_back(p.step, p.*metric.value);
      if (metric.validation == nullptr || runs[r].validation.empty()) continue;
      lines.push_back({name_of(command.runs[r]) + ", validation", {}});
      for (const ValidationPoint& v : runs[r].validation)
        lines.back().points.emplace_back(v.step, v.*metric.validation);
    }
    fmt::print("{}", chart(fmt::format("{} by step", metric.title), lines, style));
  }
  return 0;
}

}  // namespace

Command add_plot(CLI::App& program) {
  const auto options = std::make_shared<PlotOptions>();
  CLI::App* app = program.add_subcommand("plot", "curves of runs, in the terminal");
  app->add_option("runs", options->runs, "run directories, drawn over each other")->required();
  app->add_option("--metric", options->metrics,
                  "loss, accuracy, lr, gradient_norm, rate, reduce_seconds, workers or goodput; several: a chart each "
                  "(default: loss, accuracy and rate)")
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
