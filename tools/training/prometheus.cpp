#include "tools/training/prometheus.h"

#include <cmath>
#include <map>

#include "tools/web/prometheus_text.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// Integers stay integers; a value that is not a number becomes NaN.
void sample(PrometheusText& page, const Json& value, const PrometheusText::Labels& labels = {}) {
  if (value.is_number_integer()) page.sample(value.get<int64_t>(), labels);
  else page.sample(value.is_number() ? value.get<double>() : std::nan(""), labels);
}

void add_training(PrometheusText& page, const Json& status) {
  struct Row {
    const char *name, *type, *key, *help;
  };
  static constexpr Row kRows[] = {
      {"step", "gauge", "step", "Updates in the ledger."},
      {"planned_steps", "gauge", "steps", "Updates of the whole run."},
      {"generation", "gauge", "generation", "Number of the generation of workers."},
      {"loss", "gauge", "loss", "Mean loss of the last step's batch."},
      {"accuracy", "gauge", "accuracy", "Share of the last step's targets that were the likeliest."},
      {"learning_rate", "gauge", "lr", "Learning rate of the last step."},
      {"gradient_norm", "gauge", "gradient_norm", "Norm of the last step's gradient before clipping."},
      {"reduce_seconds", "gauge", "reduce_seconds", "Time of the last reduction, waiting for leaves included."},
      {"validation_loss", "gauge", "validation_loss", "Mean loss on the validation split, when it was last computed."},
      {"remaining_seconds", "gauge", "seconds_left", "What the rest will take at the present rate."},
      {"steps_total", "counter", "steps_made", "Updates that this coordinator has recorded."},
      {"samples_total", "counter", "samples", "Samples of these updates."},
      {"targets_total", "counter", "targets", "Targets of these updates: labels, or tokens of text."}};
  for (const Row& row : kRows) {
    if (!status.contains(row.key) || status[row.key].is_null()) continue;
    page.metric(row.name, row.type, row.help);
    sample(page, status[row.key]);
  }
  for (const auto& [key, value] : status.items()) {
    if (!key.starts_with("validation_") || key == "validation_loss") continue;
    page.metric(key, "gauge", fmt::format("The metric {} on the validation split, then.", key.substr(11)));
    sample(page, value);
  }
}

void add_workers(PrometheusText& page, const Json& workers) {
  std::map<std::string, int64_t> states = {{"member", 0}};
  for (const Json& worker : workers) ++states[worker.at("state").get<std::string>()];
  page.metric("workers", "gauge", "Workers by what they are.");
  for (const auto& [state, count] : states) page.sample(count, {{"state", state}});
}

void add_goodput(PrometheusText& page, const Json& goodput) {
  page.metric("goodput_ratio", "gauge", "Share of the time that went to training.");
  sample(page, goodput.at("goodput"));
  page.metric("run_seconds_total", "counter", "Time since this coordinator began.");
  sample(page, goodput.at("seconds"));
  page.metric("training_seconds", "gauge", "What of it went to training.");
  sample(page, goodput.at("training"));
  page.metric("lost_seconds_total", "counter", "What of it was lost, by cause.");
  for (const auto& [cause, lost] : goodput.at("lost").items()) sample(page, lost.at("seconds"), {{"cause", cause}});
  page.metric("interruptions_total", "counter", "How often time was lost, by cause.");
  for (const auto& [cause, lost] : goodput.at("lost").items()) sample(page, lost.at("times"), {{"cause", cause}});
}

}  // namespace

std::string prometheus_text(const Json& status) {
  PrometheusText page("elinvar_", {{"run", status.value("run", "")}});
  page.metric("up", "gauge", "1 once the job has begun, 0 before.");
  page.sample(int64_t{status.contains("step")});
  if (!status.contains("step")) return page.text();
  add_training(page, status);
  add_workers(page, status.at("workers"));
  add_goodput(page, status.at("goodput"));
  page.metric("events_total", "counter", "Lines that this coordinator added to events.jsonl, by kind.");
  for (const auto& [event, count] : status.at("event_counts").items()) sample(page, count, {{"event", event}});
  return page.text();
}

}  // namespace elinvar
