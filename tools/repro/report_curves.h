#pragma once
// The curves of a run, cut down to so many points that a page can draw them.
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/training/curves.h"

namespace elinvar {

// At most `most` points. Each match for as many steps as the others (the last one perhaps for fewer): "step" is the
// last of them, "loss_low" and "loss_high" bound what they had, lr, workers, goodput and "seconds" are those of the
// last, others the mean of all that are finite. `seconds` tells when a point of time was, on the page's axis.
nlohmann::ordered_json binned(const Curves& curves, size_t most, const std::vector<double>& seconds);

// At most `most` of them, the last one among them.
nlohmann::ordered_json thinned(const std::vector<ValidationPoint>& points, size_t most);

// To so many digits that a page needs; what is not finite becomes null.
nlohmann::ordered_json rounded(double value);

}  // namespace elinvar
