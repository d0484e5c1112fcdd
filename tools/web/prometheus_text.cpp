#include "tools/web/prometheus_text.h"

#include <cmath>

namespace elinvar {
namespace {

std::string escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') escaped += "\\n";
    else escaped += c;
  }
  return escaped;
}

}  // namespace

void PrometheusText::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = prefix_ + std::string(name);
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
}

void PrometheusText::sample(double value, const Labels& labels) {
  if (std::isnan(value)) return add("NaN", labels);
  add(std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{}", value), labels);
}

void PrometheusText::add(const std::string& value, const Labels& labels) {
  std::string all;
  for (const Labels& part : {common_, labels})
    for (const auto& [name, of] : part) all += fmt::format("{}{}=\"{}\"", all.empty() ? "" : ",", name, escaped(of));
  text_ += name_ + (all.empty() ? "" : "{" + all + "}") + " " + value + "\n";
}

}  // namespace elinvar
