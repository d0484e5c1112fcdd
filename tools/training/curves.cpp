#include "tools/training/curves.h"

#include "elastic/ledger/utc_time.h"

namespace elinvar {

using Json = nlohmann::json;

namespace {

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : CurvePoint::kNone;
}

}  // namespace

bool Curves::add(const Json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return false;
  const int64_t step = line["step"].get<int64_t>();
  if (line.contains("validation_loss")) {
    constexpr std::string_view kPrefix = "validation_";
    ValidationPoint& point = validation.emplace_back(ValidationPoint{.step = step});
    for (const auto& [key, value] : line.items()) {
      if (!key.starts_with(kPrefix)) continue;
      const std::string name = key.substr(kPrefix.size());
      (name == "loss"       ? point.loss
       : name == "accuracy" ? point.accuracy
                            : point.metrics[name]) = number(line, key.c_str());
    }
    return true;
  }
  if (!line.contains("loss") || (!points.empty() && step <= points.back().step)) return false;
  CurvePoint p{.step = step,
               .loss = number(line, "loss"),
               .accuracy = number(line, "accuracy"),
               .lr = number(line, "lr"),
               .gradient_norm = number(line, "gradient_norm"),
               .reduce_seconds = number(line, "reduce_seconds"),
               .workers = number(line, "workers"),
               .goodput = number(line, "goodput")};
  tokens = tokens || line.contains("tokens_per_second");
  p.rate = number(line, tokens ? "tokens_per_second" : "samples_per_second");
  if (line.contains("generation") && line["generation"].is_number_integer())
    p.generation = line["generation"].get<int64_t>();
  if (line.contains("time") && line["time"].is_string())
    p.time = seconds_of_utc(line["time"].get<std::string>()).value_or(CurvePoint::kNone);
  if (line.contains("leaf_seconds") && line["leaf_seconds"].is_array())
    for (const Json& s : line["leaf_seconds"]) p.leaf_seconds.push_back(s.is_number() ? s.get<double>() : 0);
  points.push_back(std::move(p));
  return true;
}

}  // namespace elinvar
