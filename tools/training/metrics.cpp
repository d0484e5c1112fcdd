#include "tools/training/metrics.h"

#include <nlohmann/json.hpp>

#include "elastic/ledger/events.h"
#include "tensor/base/json.h"

namespace elinvar {

using OrderedJson = nlohmann::ordered_json;

Metrics::Metrics(const std::filesystem::path& directory, int64_t step) : file_(directory / "metrics.jsonl") {
  size_t kept = 0;
  for (const std::string& line : file_.lines()) {
    const OrderedJson json = parse_json<OrderedJson>(line);
    // A damaged line is kept, so that the lines after it are, too.
    const bool whole = json.is_object() && json.contains("step") && json["step"].is_number_integer();
    const int64_t at = whole ? json["step"].get<int64_t>() : 0;
    if (at > step) break;
    if (whole && json.contains("validation_loss")) last_validation_ = at;
    ++kept;
  }
  file_.keep(kept);
}

void Metrics::step(int64_t step, const StepMetrics& m) {
  // Set key by key: a list of pairs would be copied twice, and this is the coordinator's most frequent work.
  OrderedJson line;
  line["step"] = step;
  line["loss"] = m.loss;
  if (m.accuracy) line["accuracy"] = *m.accuracy;
  line["lr"] = m.lr;
  line["gradient_norm"] = m.gradient_norm;
  line[m.tokens ? "tokens_per_second" : "samples_per_second"] = m.items_per_second;
  line["reduce_seconds"] = m.reduce_seconds;
  line["leaf_seconds"] = m.leaf_seconds;
  line["workers"] = m.leaf_seconds.size();
  line["generation"] = m.generation;
  line["goodput"] = m.goodput;
  line["time"] = utc_now(m.ago);
  file_.append(line.dump());
}

void Metrics::validation(int64_t step, const ValidationScore& score) {
  last_validation_ = step;
  OrderedJson line{{"step", step}, {"validation_loss", score.loss}};
  for (const auto& [name, value] : score.metrics) line["validation_" + name] = value;
  file_.append(line.dump());
}

Summary summary_of(const StepMetrics& m) {
  Summary summary;
  summary.scalar("train/loss", m.loss);
  if (m.accuracy) summary.scalar("train/accuracy", *m.accuracy);
  summary.scalar("train/learning_rate", m.lr);
  summary.scalar("train/gradient_norm", m.gradient_norm);
  summary.scalar(m.tokens ? "speed/tokens_per_second" : "speed/samples_per_second", m.items_per_second);
  summary.scalar("speed/reduce_seconds", m.reduce_seconds);
  summary.scalar("job/workers", static_cast<double>(m.leaf_seconds.size()));
  summary.scalar("job/generation", static_cast<double>(m.generation));
  summary.scalar("job/goodput", m.goodput);
  return summary;
}

Summary summary_of(const ValidationScore& validation) {
  Summary summary;
  summary.scalar("validation/loss", validation.loss);
  for (const auto& [name, value] : validation.metrics) summary.scalar("validation/" + name, value);
  return summary;
}

}  // namespace elinvar
