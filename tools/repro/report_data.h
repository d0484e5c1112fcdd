#pragma once
// The data of a run's page (tools/repro/page/) as one JSON object: everything that its script needs, limited in size
// whatever the length of the run.
#include <nlohmann/json.hpp>
#include <string>

#include "elastic/run/run_record.h"

namespace elinvar {

// `verdict`: the JSON of a comparison ("verdict" and further fields), optionally with a "text" for people; or null.
// Damaged files are read as far as possible; "problems" lists the damage.
nlohmann::ordered_json report_data(const RunRecord& record, const nlohmann::ordered_json& verdict = nullptr);

// Returns the whole page as one self-contained file.
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace elinvar
