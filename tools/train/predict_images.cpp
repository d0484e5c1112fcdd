// Classifies image files or their pixels, or finds boxes in them. They are prepared as the images of the run's
// validation split are; the data set itself may be absent.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "data/class_image.h"
#include "data/image_files.h"
#include "data/image_source.h"
#include "data/loader.h"
#include "nn/detection.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tools/cli/csv.h"
#include "tools/cli/output_file.h"
#include "tools/cli/standard_streams.h"
#include "tools/train/likeliest.h"
#include "tools/train/predict.h"
#include "tools/training/kept_form.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

// Returns the number of terminal columns of UTF-8 text, counting one for each code point.
size_t columns_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t columns) {
  const size_t own = columns_of(text);
  return text + std::string(columns > own ? columns - own : 0, ' ');
}

// Returns the class with the largest logit of each pixel of each image, of equal ones the first. `logits` is (N, H, W,
// classes), float32, on the CPU.
std::vector<std::vector<uint8_t>> classes_of_pixels(const Tensor& logits) {
  const Tensor x = logits.to_contiguous();
  const int64_t images = x.shape()[0], classes = x.shape()[3], pixels = x.numel() / classes / images;
  std::vector<std::vector<uint8_t>> all(static_cast<size_t>(images));
  const float* row = x.data<float>();
  for (std::vector<uint8_t>& image : all)
    for (int64_t i = 0; i < pixels; ++i, row += classes)
      image.push_back(static_cast<uint8_t>(std::max_element(row, row + classes) - row));
  return all;
}

// Prints the classes of each image, or its boxes, and collects the lines of the .csv file.
class Listing {
 public:
  Listing(const PredictOptions& options, const ImageFiles& images, bool boxes)
      : options_(options),
        images_(images),
        csv_(boxes ? "image,rank,class,score,left,top,width,height\n" : "image,rank,class,probability\n") {
    for (int64_t i = 0; i < images.size(); ++i) name_columns_ = std::max(name_columns_, columns_of(images.name(i)));
    for (const std::string& name : images.class_names()) class_columns_ = std::max(class_columns_, columns_of(name));
    if (images.class_names().empty()) class_columns_ = std::to_string(images.classes() - 1).size();
  }

  void add(int64_t image, const std::vector<Likely>& likely) {
    const std::string name = images_.name(image);
    if (options_.json) {
      nlohmann::ordered_json classes = nlohmann::ordered_json::array();
      for (const Likely& one : likely)
        classes.push_back({{"class", one.index}, {"name", class_name(one.index)}, {"probability", one.probability}});
      const nlohmann::ordered_json line = {{"image", name}, {"classes", classes}};
      fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else {
      std::string line = padded(name, name_columns_);
      for (const Likely& one : likely)
        line += fmt::format("  {} {:.4f}", padded(class_name(one.index), class_columns_), one.probability);
      fmt::print("{}\n", line);
    }
    for (size_t rank = 0; rank < likely.size() && !options_.csv.empty(); ++rank)
      csv_ += fmt::format("{},{},{},{}\n", csv_field(name), rank + 1, csv_field(class_name(likely[rank].index)),
                          likely[rank].probability);
  }

  // Prints the share of each class that occurs, the largest first.
  void add(int64_t image, const std::vector<uint8_t>& classes) {
    std::vector<int64_t> counts(static_cast<size_t>(images_.classes()));
    for (const uint8_t k : classes) ++counts[k];
    std::vector<Likely> shares;
    for (size_t k = 0; k < counts.size(); ++k)
      if (counts[k] > 0)
        shares.push_back({static_cast<int64_t>(k), static_cast<float>(counts[k]) / static_cast<float>(classes.size())});
    std::ranges::stable_sort(shares, std::greater(), &Likely::probability);
    shares.resize(std::min(shares.size(), static_cast<size_t>(options_.top)));
    add(image, shares);
    if (options_.masks.empty()) return;
    std::filesystem::create_directories(options_.masks);
    replace_file(mask_path(image), encode_classes(images_.classes_in_image(image, classes)));
  }
  std::filesystem::path mask_path(int64_t image) const {
    return std::filesystem::path(options_.masks) /
           std::filesystem::path(images_.name(image)).filename().replace_extension(".png");
  }

  // Boxes are written as in COCO's files: left, top, width and height in pixels.
  void add(int64_t image, const std::vector<Detection>& found) {
    const std::string name = images_.name(image);
    nlohmann::ordered_json boxes = nlohmann::ordered_json::array();
    for (size_t rank = 0; rank < std::min(found.size(), static_cast<size_t>(options_.top)); ++rank) {
      const Detection& one = found[rank];
      const ImageBox b = images_.in_image(image, {one.label, one.box.x1, one.box.y1, one.box.x2, one.box.y2});
      const double width = b.x2 - b.x1, height = b.y2 - b.y1;
      const std::string label = class_name(one.label);
      if (options_.json)
        boxes.push_back(
            {{"class", one.label}, {"name", label}, {"score", one.score}, {"bbox", {b.x1, b.y1, width, height}}});
      else
        fmt::print("{}  {} {:.4f}  {:.1f} {:.1f} {:.1f} {:.1f}\n", padded(name, name_columns_),
                   padded(label, class_columns_), one.score, b.x1, b.y1, width, height);
      if (!options_.csv.empty())
        csv_ += fmt::format("{},{},{},{},{},{},{},{}\n", csv_field(name), rank + 1, csv_field(label), one.score, b.x1,
                            b.y1, width, height);
    }
    const nlohmann::ordered_json line = {{"image", name}, {"boxes", boxes}};
    if (options_.json) fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }

  void write() const {
    if (!options_.csv.empty()) write_output(options_.csv, csv_);
  }

 private:
  std::string class_name(int64_t index) const {
    const auto i = static_cast<size_t>(index);
    return i < images_.class_names().size() ? images_.class_names()[i] : std::to_string(index);
  }

  const PredictOptions& options_;
  const ImageFiles& images_;
  size_t name_columns_ = 0, class_columns_ = 0;
  std::string csv_;
};

}  // namespace

int predict_images(const PredictOptions& options) {
  if (!options.csv.empty()) check_output(options.csv);
  const std::filesystem::path directory = options.run_dir;
  const Config config = read_run_config(directory);
  check(has_images(config.data), "{} has no network for images that are files: its data.kind is '{}'{}",
        directory.string(), config.data.kind, is_built_in_dataset(config.data.kind) ? "; --text takes a text" : "");
  const auto images = std::make_shared<ImageFiles>(config.data, form_of_run(directory, config), options.images);
  TrainingSetup setup(config, images, parse_device(options.device.device));
  setup.load_network(directory);

  const auto* const detector = dynamic_cast<const Detector*>(setup.task.operator->());
  const bool masks = has_masks(config.data);
  check(options.masks.empty() || masks, "--masks: {} has no network that finds the class of each pixel",
        directory.string());
  Listing listing(options, *images, detector != nullptr);
  std::map<std::filesystem::path, int64_t> to;  // which image each mask is of
  std::set<std::filesystem::path> read;
  std::error_code unknown;
  for (int64_t i = 0; i < images->size() && !options.masks.empty(); ++i)
    read.insert(std::filesystem::weakly_canonical(images->name(i), unknown));
  for (int64_t i = 0; i < images->size() && !options.masks.empty(); ++i) {
    check(!read.contains(std::filesystem::weakly_canonical(listing.mask_path(i), unknown)),
          "--masks: the mask of '{}' would replace the image {}; choose another folder", images->name(i),
          listing.mask_path(i).string());
    const auto [found, is_new] = to.emplace(listing.mask_path(i), i);
    check(is_new, "--masks: '{}' and '{}' would have the same mask {}", images->name(found->second), images->name(i),
          found->first.string());
  }
  Loader loader(images, {.global_batch = setup.rank_samples(),
                         .shuffle = false,
                         .augment = false,
                         .threads = config.reader.threads,
                         .prefetch = config.reader.prefetch,
                         .device = setup.device});
  int64_t image = 0, unreadable = 0;
  for (int64_t step = 0; step < loader.steps_per_epoch(); ++step) {
    const Batch batch = loader.batch(step, 0);
    const Inputs input = batch.input_on(setup.device);
    const auto list = [&](const auto& of_each) {
      for (const auto& found : of_each) {
        const std::string failure = images->failure(image);
        if (failure.empty()) listing.add(image, found);
        else say(stderr, "{}\n", failure);
        unreadable += !failure.empty();
        ++image;
      }
    };
    const Tensor output = output_of(setup, std::span(&input, 1)).to(Device{});
    if (detector != nullptr) list(detector->detect(output));
    else if (masks) list(classes_of_pixels(output));
    else list(likeliest(output, options.top));
  }
  listing.write();
  if (unreadable > 0) fail("{} of {} images could not be read", unreadable, images->size());
  return 0;
}

}  // namespace elinvar
