#include "tools/training/curves.h"

#include <cstdio>
#include <ctime>

namespace elinvar {

using Json = nlohmann::json;

namespace {

double number(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : CurvePoint::kNone;
}

}  // namespace

double calendar_seconds(const std::string& text) {
  std::tm utc{};
  int milliseconds = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
                  &utc.tm_min, &utc.tm_sec, &milliseconds) < 6)
    return CurvePoint::kNone;
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  return static_cast<double>(::timegm(&utc)) + 1e-3 * milliseconds;
}

bool Curves::add(const Json& line) {
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return false;
  const int64_t step = line["step"].get<int64_t>();
  if (line.contains("validation_loss")) {
    validation.push_back({step, number(line, "validation_loss"), number(line, "validation_accuracy")});
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
  if (line.contains("time") && line["time"].is_string()) p.time = calendar_seconds(line["time"].get<std::string>());
  if (line.contains("leaf_seconds") && line["leaf_seconds"].is_array())
    for (const Json& s : line["leaf_seconds"]) p.leaf_seconds.push_back(s.is_number() ? s.get<double>() : 0);
  points.push_back(std::move(p));
  return true;
}

}  // namespace elinvar
