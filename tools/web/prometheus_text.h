#pragma once
// Writes the text format of Prometheus (prometheus.io/docs/instrumenting/exposition_formats, 0.0.4): one metric after
// another, each with its description and its samples.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace elinvar {

class PrometheusText {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4";
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  // `prefix` begins the name of each metric; `common` labels are added to each sample.
  explicit PrometheusText(std::string prefix, Labels common = {})
      : prefix_(std::move(prefix)), common_(std::move(common)) {}

  // Begins a metric. `type`: "gauge" or "counter". `help`: one sentence on one line.
  void metric(std::string_view name, std::string_view type, std::string_view help);
  // Adds a sample of the current metric. Escapes label values.
  void sample(int64_t value, const Labels& labels = {}) { add(fmt::format("{}", value), labels); }
  void sample(double value, const Labels& labels = {});

  const std::string& text() const { return text_; }

 private:
  void add(const std::string& value, const Labels& labels);
  std::string prefix_;
  Labels common_;
  std::string name_, text_;
};

}  // namespace elinvar
