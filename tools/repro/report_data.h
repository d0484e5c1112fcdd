#pragma once
// What the page of a run shows (tools/repro/page/), as one JSON object: everything that its script needs, and little
// that it does not, whatever the length of the run.
#include <nlohmann/json.hpp>
#include <string>

#include "elastic/run/run_record.h"

namespace elinvar {

// `verdict`: what a comparison told ("verdict", and what else its JSON has), with a "text" for people perhaps; or null.
// Damaged files cost what cannot be read of them: "problems" says what.
nlohmann::ordered_json report_data(const RunRecord& record, const nlohmann::ordered_json& verdict = nullptr);

// The whole page, which needs nothing but itself.
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace elinvar
