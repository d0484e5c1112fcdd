#include "data/dataset.h"

#include <filesystem>
#include <new>

#include "data/box_dataset.h"
#include "data/image_dataset.h"
#include "data/labelled_text.h"
#include "data/mask_dataset.h"
#include "data/ratings.h"
#include "data/synthetic_boxes.h"
#include "data/synthetic_masks.h"
#include "data/table.h"
#include "data/text.h"
#include "data/text_pairs.h"
#include "tensor/base/registry.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"

namespace elinvar {
namespace {

using Open = std::unique_ptr<Dataset>(const DataConfig&, Split, DataConfig* resolved);

using Pixels = std::function<PixelStatistics(const DataConfig&)>;

struct Kind {
  std::string name;
  std::function<Open> open;
  Pixels pixels = {};  // returns the usual statistics of its images; null if it has no images
};

// Returns a built-in kind; `needs_path` says whether it requires a path.
Kind built_in(const char* name, std::function<std::unique_ptr<Dataset>(const DataConfig&, Split)> open, bool needs_path,
              Pixels pixels = {}) {
  return {name,
          [=](const DataConfig& config, Split split, DataConfig*) {
            check_setting(!needs_path || !config.path.empty(), "data.path", "is missing: '{}' needs one", config.kind);
            return open(config, split);
          },
          pixels};
}

using OpenParts = std::unique_ptr<Dataset>(const DataConfig&, const ImageParts&, const PixelStatistics&, Split);

Kind images(const char* name, ImageParts (*open)(const DataConfig&), const Pixels& pixels, bool needs_path = true,
            OpenParts* open_parts = open_image_dataset) {
  const auto opened = [=](const DataConfig& config, Split split) {
    const ImageParts parts = open(config);
    return open_parts(config, parts, pixels(config), split);
  };
  return built_in(name, opened, needs_path, pixels);
}

PixelStatistics cifar10_pixels(const DataConfig&) { return {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}}; }
PixelStatistics mnist_pixels(const DataConfig&) { return {{0.1307}, {0.3081}}; }
PixelStatistics photo_pixels(const DataConfig&) {
  return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
}  // ImageNet's
PixelStatistics synthetic_pixels(const DataConfig& config) {
  const auto channels = static_cast<size_t>(config.channels);
  return {std::vector<double>(channels, 0.5), std::vector<double>(channels, 0.25)};
}

Registry<Kind>& registry() {
  static Registry<Kind> all({
      images("cifar10", open_cifar10, cifar10_pixels),
      images("coco", open_coco, photo_pixels, /*needs_path=*/true, open_box_dataset),
      images("image_folder", open_image_folder, photo_pixels),
      images("image_masks", open_image_masks, photo_pixels, /*needs_path=*/true, open_mask_dataset),
      images("mnist", open_mnist, mnist_pixels),
      images("synthetic", open_synthetic_images, synthetic_pixels, /*needs_path=*/false),
      built_in("labelled_text", open_labelled_text, true),
      built_in("ratings", open_ratings, true),
      built_in("synthetic_boxes", open_synthetic_boxes, false),
      built_in("synthetic_masks", open_synthetic_masks, false),
      built_in("synthetic_pairs", open_synthetic_pairs, false),
      built_in("synthetic_table", open_synthetic_table, false),
      built_in("synthetic_text", open_synthetic_text, false),
      built_in("table", open_table, true),
      built_in("text", open_text, true),
      built_in("text_pairs", open_text_pairs, true),
      built_in("tokens", open_tokens, true),
      images("webdataset", open_webdataset, photo_pixels),
  });
  return all;
}

// Exceptions of the standard library do not say which data set was being opened, so they are replaced by a Failure
// that does.
std::unique_ptr<Dataset> opened(const Kind& kind, const DataConfig& config, Split split, DataConfig* resolved) {
  try {
    return kind.open(config, split, resolved);
  } catch (const std::filesystem::filesystem_error& error) {
    fail("[data] cannot look at '{}': {}", error.path1().string(), error.code().message());
  } catch (const std::bad_alloc&) {
    fail("[data] there is not enough memory to open '{}'", config.path.empty() ? config.kind : config.path);
  }
}

}  // namespace

const char* name_of(Split split) {
  return split == Split::train ? "train" : split == Split::validation ? "validation" : "test";
}

std::string Dataset::tokenizer_json() const { return vocabulary() ? vocabulary()->tokenizer_json() : ""; }

const std::vector<std::string>& Dataset::class_names() const {
  static const std::vector<std::string> none;
  return none;
}

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Split split, DataConfig* resolved) {
  check_setting(config.validation_fraction >= 0 && config.validation_fraction < 1, "data.validation_fraction",
                "must be in [0, 1), got {}", config.validation_fraction);
  const Kind* kind = registry().find(config.kind);
  check_setting(kind != nullptr, "data.kind", "does not know '{}'{}", config.kind,
                spelling_hint(config.kind, registry().names()));
  DataConfig complete = config;
  std::unique_ptr<Dataset> dataset = opened(*kind, config, split, &complete);
  if (resolved != nullptr) *resolved = std::move(complete);
  return dataset;
}

void register_dataset(DatasetKind kind) {
  const auto open = [open = std::move(kind.open)](const DataConfig& config, Split split, DataConfig* resolved) {
    Settings settings(config.own, "data", &resolved->own);
    std::unique_ptr<Dataset> dataset = open(settings, split);
    settings.finish();
    check(dataset != nullptr, "[data] kind '{}' opened no data set for the split {}", config.kind, name_of(split));
    return dataset;
  };
  registry().add({std::move(kind.name), open}, "data");
}

std::optional<PixelStatistics> usual_pixels(const DataConfig& config) {
  const Kind* kind = registry().find(config.kind);
  if (kind == nullptr || !kind->pixels) return std::nullopt;
  return kind->pixels(config);
}

bool is_built_in_dataset(std::string_view kind) { return registry().built_in(kind); }

Digest digest(const Dataset& dataset) {
  Hasher hasher;
  dataset.describe(hasher);
  return hasher.digest();
}

}  // namespace elinvar
