#include "tools/repro/report_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace elinvar {

using Json = nlohmann::json;
using Ordered = nlohmann::ordered_json;

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
    validation.push_back({{"step", step},
                          {"loss", rounded(number(line, "validation_loss"))},
                          {"accuracy", rounded(number(line, "validation_accuracy"))}});
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
  if (const double generation = number(line, "generation"); std::isfinite(generation))
    p.generation = static_cast<int64_t>(generation);
  if (line.contains("time") && line["time"].is_string()) p.time = calendar_seconds(line["time"].get<std::string>());
  if (line.contains("leaf_seconds") && line["leaf_seconds"].is_array())
    for (const Json& s : line["leaf_seconds"]) p.leaf_seconds.push_back(s.is_number() ? s.get<double>() : 0);
  points.push_back(std::move(p));
  return true;
}

Ordered rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  const double short_one = std::stod(fmt::format("{:.5g}", value));
  if (short_one == std::trunc(short_one) && std::abs(short_one) < 1e15) return static_cast<int64_t>(short_one);
  return short_one;
}

Ordered binned(const Curves& curves, size_t most, const std::vector<double>& seconds) {
  const std::vector<CurvePoint>& points = curves.points;
  const size_t each = std::max<size_t>(1, (points.size() + most - 1) / most);
  Ordered json = {{"each", each}};
  for (const char* key : {"step", "loss", "loss_low", "loss_high", "accuracy", "lr", "gradient_norm", "rate",
                          "reduce_seconds", "workers", "goodput", "seconds"})
    json[key] = Ordered::array();
  for (size_t begin = 0; begin < points.size(); begin += each) {
    const size_t end = std::min(points.size(), begin + each);
    const auto mean = [&](double CurvePoint::*value) {
      double sum = 0, count = 0;
      for (size_t i = begin; i < end; ++i)
        if (std::isfinite(points[i].*value)) {
          sum += points[i].*value;
          ++count;
        }
      return rounded(count > 0 ? sum / count : CurvePoint::kNone);
    };
    const CurvePoint& last = points[end - 1];
    double low = CurvePoint::kNone, high = CurvePoint::kNone;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[i].loss)) continue;
      low = std::fmin(low, points[i].loss);
      high = std::fmax(high, points[i].loss);
    }
    json["step"].push_back(last.step);
    json["loss"].push_back(mean(&CurvePoint::loss));
    json["loss_low"].push_back(rounded(low));
    json["loss_high"].push_back(rounded(high));
    json["accuracy"].push_back(mean(&CurvePoint::accuracy));
    json["lr"].push_back(rounded(last.lr));
    json["gradient_norm"].push_back(mean(&CurvePoint::gradient_norm));
    json["rate"].push_back(mean(&CurvePoint::rate));
    json["reduce_seconds"].push_back(mean(&CurvePoint::reduce_seconds));
    json["workers"].push_back(rounded(last.workers));
    json["goodput"].push_back(rounded(last.goodput));
    json["seconds"].push_back(rounded(seconds[end - 1]));
  }
  return json;
}

}  // namespace elinvar
