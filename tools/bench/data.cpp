#include "tools/bench/data.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>

#include "data/files.h"
#include "data/loader.h"
#include "data/transform.h"
#include "tensor/base/check.h"
#include "tools/bench/models.h"
#include "tools/bench/trainer.h"

namespace elinvar::bench {
namespace {

constexpr int64_t kBatch = 16;

struct DataCase {
  std::string name;
  bool transforms = true, augments = true;
  DataConfig config = {};
  Mixing mixing = {};
};

const std::vector<DataCase>& data_cases() {
  static const std::vector<DataCase> all = [] {
    DataConfig train;
    train.image_size = 224;
    train.random_resized_crop = train.flip = true;
    DataConfig jitter = train, eval;
    jitter.brightness = jitter.contrast = jitter.saturation = 0.4;
    jitter.hue = 0.1;
    eval.image_size = 224;
    eval.resize = 256;
    return std::vector<DataCase>{{.name = "decode", .transforms = false},
                                 {.name = "train", .config = train},
                                 {.name = "train jitter", .config = jitter},
                                 {.name = "train mixup", .config = train, .mixing = {.mixup = 0.2}},
                                 {.name = "eval", .augments = false, .config = eval}};
  }();
  return all;
}

// The images of a folder or archive in name order; an image's label is its index.
class ImageFiles final : public Dataset {
 public:
  ImageFiles(const std::string& path, const DataCase& of) : files_(open_files(path)) {
    for (size_t i = 0; i < files_->entries().size(); ++i) {
      std::string end = files_->entries()[i].path;
      end = end.substr(end.rfind('.') + 1);
      std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return std::tolower(c); });
      if (end == "jpg" || end == "jpeg" || end == "png") images_.push_back(i);
    }
    check(!images_.empty(), "bench data: '{}' holds no .jpg, .jpeg or .png", path);
    const Image first = decode(0);
    if (of.transforms)
      transform_.emplace(of.config, first.view(), PixelStatistics{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}});
  }

  int64_t size() const override { return static_cast<int64_t>(images_.size()); }
  SampleFormat format() const override {
    return {.inputs = {{transform_ ? transform_->output_shape() : Shape{1, 1, 1}, DType::f32}},
            .target = {Shape{}, DType::i64}};
  }
  int64_t classes() const override { return size(); }
  void read(int64_t index, const Draw& draw, const SampleBuffers& sample) const override {
    const Image image = decode(index);
    auto* output = sample.input<float>();
    if (transform_)
      (*transform_)(
          image.view(), index, draw, [] { return std::string("an image"); }, output);
    else *output = image.pixels.front();
    *sample.target<int64_t>() = index;
  }
  void describe(Hasher& hasher) const override { hasher.add_integer(size()); }

 private:
  Image decode(int64_t index) const {
    const size_t file = images_[static_cast<size_t>(index)];
    return decode_image(files_->read(file), 3, files_->entries()[file].path);
  }

  std::unique_ptr<FileSet> files_;
  std::vector<size_t> images_;
  std::optional<ImageTransform> transform_;
};

// Measures wall time, because the work of readers is not time of this thread.
class Watch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

LoaderOptions options_of(const DataCase& of, int readers) {
  LoaderOptions options{.seed = 1, .global_batch = kBatch};
  options.augment = of.augments;
  options.mixing = of.mixing;
  options.threads = readers;
  options.prefetch = 2 * readers;
  return options;
}

void run_reading(const DataCase& of, const std::string& path, int threads, int repeat, Report& report) {
  const auto data = std::make_shared<ImageFiles>(path, of);
  Loader loader(data, options_of(of, threads - 1));
  constexpr int64_t kSteps = 32;
  int64_t step = 0, images = 0;
  loader.batch(step++, 0);
  const Watch watch;
  for (const int64_t end = step + repeat * kSteps; step < end; ++step) images += loader.batch(step, 0).samples;
  const double seconds = watch.seconds() / repeat;
  report.add("data " + of.name, seconds, 0, 0, static_cast<double>(images) / repeat, "images");
}

void run_steps(const std::string& path, int repeat, Report& report) {
  const DataCase& of = data_cases()[1];
  const auto data = std::make_shared<ImageFiles>(path, of);
  Loader loader(data, {.seed = 1, .global_batch = kBatch});
  Trainer trainer(model_case("resnet50"), kBatch);
  std::vector<double> waited, whole;
  for (int64_t step = 0; static_cast<int>(waited.size()) <= repeat; ++step) {
    if (loader.samples(step) < kBatch) continue;  // the last batch of an epoch may be smaller
    const Watch watch;
    const Batch batch = loader.batch(step, 0);
    waited.push_back(1e3 * watch.seconds());
    trainer.set_batch(batch.input, batch.target);
    trainer.step();
    whole.push_back(watch.seconds());
  }
  const double first = waited.front();
  waited.erase(waited.begin());
  whole.erase(whole.begin());
  const auto steps = static_cast<double>(waited.size());
  report.add("data step", std::accumulate(whole.begin(), whole.end(), 0.0) / steps, trainer.gflop(), 0, trainer.items(),
             "images",
             {{"waited_first", first},
              {"waited", std::accumulate(waited.begin(), waited.end(), 0.0) / steps},
              {"waited_most", *std::max_element(waited.begin(), waited.end())}});
}

}  // namespace

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const DataCase& c : data_cases()) names.push_back(c.name);
  names.emplace_back("step");
  return names;
}

void run_data(const std::string& name, const std::string& path, int threads, int repeat, Report& report) {
  if (name == "step") return run_steps(path, repeat, report);
  for (const DataCase& c : data_cases())
    if (name == c.name) return run_reading(c, path, threads, repeat, report);
  throw UsageError(fmt::format("bench: unknown case '{}'; there are {}", name, fmt::join(data_names(), ", ")));
}

}  // namespace elinvar::bench
