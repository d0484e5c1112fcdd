#pragma once
// `train predict`: applies a run's network to other images (predict_images.cpp) and texts (predict_text.cpp).
#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/device_options.h"

namespace elinvar {

struct PredictOptions {
  std::string run_dir;
  std::vector<std::string> images;  // files, folders and .tar archives
  std::string text;                 // a file, or "-" for standard input; empty: images
  int64_t top = 5;                  // classes of an image, boxes in it, or tokens after a text
  bool json = false;                // a line of JSON for each image, or for the text
  std::string masks;                // a folder for PNGs of the classes of pixels; empty: none
  std::string csv;  // a .csv file to write, with a line for each class, or box, of each image; empty: none
  DeviceOptions device;
};

int predict_images(const PredictOptions& options);
int predict_text(const PredictOptions& options);

}  // namespace elinvar
