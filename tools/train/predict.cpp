// `train predict`: classes of images or of their pixels, boxes in them, or the tokens that may follow a text.
#include "tools/train/predict.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "tensor/base/check.h"
#include "tools/train/commands.h"

namespace elinvar {
namespace {

int predict(const PredictOptions& options) {
  check(options.images.empty() != options.text.empty(),
        "expected images (files, folders or .tar archives) or --text FILE, and not both");
  check(options.masks.empty() || options.text.empty(), "--masks: a text has no pixels");
  check(options.csv.empty() || options.text.empty(), "--csv: only the classes of images are written to a .csv file");
  return options.text.empty() ? predict_images(options) : predict_text(options);
}

}  // namespace

Command add_predict(CLI::App& program) {
  const auto options = std::make_shared<PredictOptions>();
  CLI::App* app = program.add_subcommand(
      "predict", "classes of images or of their pixels, or boxes in them, by a run's newest checkpoint");
  app->add_option("run_dir", options->run_dir, "a run directory")->required();
  app->add_option("images", options->images, "images (.jpg, .jpeg, .png), and folders or .tar archives of them");
  app->add_option("--text", options->text,
                  "of a language model: a file of text, or - for stdin; its loss and the likeliest tokens after it");
  app->add_option("--top", options->top, "how many classes of an image, boxes in it, or tokens after a text")
      ->check(CLI::Range(1, 1000000).description(""))
      ->capture_default_str();
  app->add_option("--csv", options->csv, "also a .csv file to write, with each class of each image, or each box");
  app->add_option("--masks", options->masks,
                  "of a network that finds the class of each pixel: a folder for a PNG of them for each image");
  app->add_flag("--json", options->json, "a line of JSON for each image, or for the text");
  options->device.add_to(*app);
  return {app, [options] {
            options->device.apply();
            return predict(*options);
          }};
}

}  // namespace elinvar
