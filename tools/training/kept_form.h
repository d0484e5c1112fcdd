#pragma once
// The form of a run's images, which its directory keeps as samples.json, so that the network can classify other images
// without the data set.
#include <filesystem>
#include <optional>

#include "data/image_files.h"
#include "elastic/protocol/joining_messages.h"
#include "tools/config/config.h"

namespace elinvar {

// Returns nullopt if the samples are not images.
std::optional<ImageForm> image_form(const Dataset& data);

void keep_form(const std::filesystem::path& run_directory, const ImageForm& form);

// Returns the form that the directory keeps. Opens the data set if an older version of this program made the run and
// kept none. Throws Failure if the file is damaged.
SampleForm form_of_run(const std::filesystem::path& run_directory, const Config& config);

}  // namespace elinvar
