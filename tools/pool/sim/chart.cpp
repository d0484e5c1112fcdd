#include "tools/pool/sim/chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar::pool {
namespace {

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string bars(const Results& results, size_t metric) {
  constexpr int kLabel = 170, kWidth = 420, kRow = 22;
  const size_t rows = results.outcomes.size();
  double most = 0;
  for (size_t c = 0; c < rows; ++c) {
    const Spread s = results.spread(c, metric);
    most = std::max(most, s.mean + s.deviation);
  }
  if (most <= 0) return "";
  const Metric& m = metrics()[metric];
  std::string svg =
      fmt::format("<figure><figcaption>{} <small>{}{}</small></figcaption><svg width=\"{}\" height=\"{}\">",
                  escaped(m.name), escaped(m.unit), m.better == Metric::kMore ? ", more is better" : "",
                  kLabel + kWidth + 90, static_cast<int>(rows) * kRow + 4);
  for (size_t c = 0; c < rows; ++c) {
    const Spread s = results.spread(c, metric);
    const double y = static_cast<double>(c) * kRow + 3, middle = y + kRow / 2.0 - 2;
    const double x = kLabel + kWidth * s.mean / most,
                 low = kLabel + kWidth * std::max(0.0, s.mean - s.deviation) / most,
                 high = kLabel + kWidth * (s.mean + s.deviation) / most;
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", kLabel - 6, middle + 4,
                       escaped(results.scenario->contestants[c].label));
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"{}/>", kLabel, y, x - kLabel, kRow - 5,
                       c == results.scenario->baseline ? " class=\"base\"" : "");
    svg += fmt::format("<path d=\"M{:.1f} {} H{:.1f}\"/><text x=\"{:.1f}\" y=\"{}\">{:.4g}</text>", low, middle, high,
                       high + 6, middle + 4, s.mean);
  }
  return svg + "</svg></figure>\n";
}

}  // namespace

std::vector<double> Results::values(size_t contestant, size_t metric) const {
  std::vector<double> all;
  for (const Outcome& outcome : outcomes[contestant]) all.push_back(metrics()[metric].of(outcome));
  return all;
}

Spread Results::spread(size_t contestant, size_t metric) const { return spread_of(values(contestant, metric)); }

Spread Results::better(size_t contestant, size_t metric) const {
  const Metric::Better better = metrics()[metric].better;
  if (better == Metric::kNeither) return {};
  return times_better(values(contestant, metric), values(scenario->baseline, metric), better == Metric::kMore);
}

std::string chart_page(const Results& results) {
  const Scenario& scenario = *results.scenario;
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>pool sim: {}</title><style>\n"
      "body{{font:14px sans-serif;margin:2em;color:#222;background:#fff}} figure{{display:inline-block;margin:1em}}\n"
      "figcaption{{font-weight:600;margin-bottom:.4em}} small{{font-weight:400;color:#666}} rect{{fill:#3b78b5}}\n"
      "rect.base{{fill:#999}} path{{stroke:#222;stroke-width:1.5}} text{{font-size:12px;fill:#222}} "
      "p{{max-width:60em}}\n"
      "</style></head><body>\n<h1>{}</h1>\n<p>{}</p>\n<p>{}</p>\n<p>Means of {} seeds; whiskers: one standard "
      "deviation; "
      "grey: the baseline.</p>\n",
      escaped(scenario.name), escaped(scenario.name), escaped(scenario.what), escaped(scenario.paper),
      results.outcomes.front().size());
  for (size_t m = 0; m < metrics().size(); ++m) page += bars(results, m);
  return page + "</body></html>\n";
}

}  // namespace elinvar::pool
