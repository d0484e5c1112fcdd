#pragma once
// Reduces the curves of a run to a number of points that a page can draw.
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/training/curves.h"

namespace elinvar {

// Returns at most `most` points. Each stands for the same number of steps (the last one perhaps for fewer): "step" is
// its last step; "loss_low" and "loss_high" are bounds; lr, workers, goodput and "seconds" are values of the last step;
// others are means of the finite values. `seconds`: the time of each point on the page's axis.
nlohmann::ordered_json binned(const Curves& curves, size_t most, const std::vector<double>& seconds);

// Returns at most `most` points, including the last.
nlohmann::ordered_json thinned(const std::vector<ValidationPoint>& points, size_t most);

// Rounds to as many digits as a page needs; infinities and NaN become null.
nlohmann::ordered_json rounded(double value);

}  // namespace elinvar
