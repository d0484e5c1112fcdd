#pragma once
// The form of a run's images, kept in its directory as samples.json, so that the network can classify other images
// without the data set. A worker tells it to the coordinator with its environment, as "samples".
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/image_files.h"
#include "tools/config/config.h"

namespace elinvar {

// Returns null if the samples are no images.
nlohmann::ordered_json form_to_keep(const Dataset& data);

void keep_form(const std::filesystem::path& run_directory, const nlohmann::json& form);

// Returns the form that the directory keeps. A run of an older version of this program keeps none; then the data are
// opened. Throws Failure if the file is damaged.
SampleForm form_of_run(const std::filesystem::path& run_directory, const Config& config);

}  // namespace elinvar
