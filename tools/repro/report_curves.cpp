#include "tools/repro/report_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace elinvar {

using Ordered = nlohmann::ordered_json;

Ordered rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  double short_one = value;  // keeps the value if five digits exceed the greatest double
  const std::string digits = fmt::format("{:.5g}", value);
  std::from_chars(digits.data(), digits.data() + digits.size(), short_one);
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

Ordered thinned(const std::vector<ValidationPoint>& points, size_t most) {
  const size_t each = std::max<size_t>(1, (points.size() + most - 1) / most);
  Ordered json = Ordered::array();
  for (size_t i = 0; i < points.size(); ++i) {
    if ((points.size() - 1 - i) % each != 0) continue;
    Ordered& point = json.emplace_back(Ordered{
        {"step", points[i].step}, {"loss", rounded(points[i].loss)}, {"accuracy", rounded(points[i].accuracy)}});
    for (const auto& [name, value] : points[i].metrics) point["metrics"][name] = rounded(value);
  }
  return json;
}

}  // namespace elinvar
