// `eval`: scores a run's newest checkpoint on a split.
#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "nn/micro_batch.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/ops/copy.h"
#include "tools/cli/device_options.h"
#include "tools/cli/output_file.h"
#include "tools/launch/commands.h"
#include "tools/training/new_files.h"
#include "tools/training/ranking.h"
#include "tools/training/training_setup.h"

namespace elinvar {
namespace {

struct EvalOptions {
  std::string run_dir;
  std::string split = "validation";
  bool mirror = false;    // averages the logits of an image and its mirror image
  bool json = false;      // the score as JSON
  std::string confusion;  // .csv file to write, with how often each class was predicted for each; empty: none
  std::string logits;     // .safetensors file to write, with the logits and targets of all samples; empty: none
  DeviceOptions device;
};

// The logits and targets of a split, in its order.
class Outputs {
 public:
  void add(const Tensor& logits, const Tensor& target) {
    logits_.push_back(logits.to(Device{}).to_contiguous());
    targets_.push_back(target.to(Device{}).to_contiguous());
  }
  void write(const std::filesystem::path& path) const {
    NewFiles files;
    files.add_tensors(path, {{"logits", joined(logits_)}, {"targets", joined(targets_)}});
    files.commit();
  }

 private:
  static Tensor joined(const std::vector<Tensor>& parts) {
    Shape shape = parts.at(0).shape();
    shape[0] = 0;
    for (const Tensor& part : parts) shape[0] += part.dim(0);
    const Tensor all = Tensor::empty(shape, parts[0].dtype());
    int64_t at = 0;
    for (const Tensor& part : parts) {
      Tensor place = all.slice(0, at, at + part.dim(0));
      copy(part, place);
      at += part.dim(0);
    }
    return all;
  }
  std::vector<Tensor> logits_, targets_;
};

int eval(const EvalOptions& command) {
  if (!command.confusion.empty()) check_output(command.confusion);
  if (!command.logits.empty()) check_replaceable(command.logits);
  const std::filesystem::path directory = command.run_dir;
  TrainingSetup setup(read_run_config(directory), command.split == "test" ? Split::test : Split::validation,
                      parse_device(command.device.device));
  const bool text = setup.data->vocabulary() != nullptr, images = setup.data->input_shape().ndim() == 3;
  const bool classifies = setup.config.classifies();
  check(!command.mirror || images, "--mirror: the data of this run are no images");
  check(!command.mirror || setup.data->target_shape().ndim() < 2,
        "--mirror: the targets of this run have places in the image, which are elsewhere in its mirror image");
  check(command.confusion.empty() || (classifies && !text), "--confusion: this run has no classes of samples");
  const int64_t step = setup.load_network(directory);
  std::optional<Ranking> ranking;
  if (classifies) ranking.emplace(setup.data->classes(), setup.config.loss.ignore_index, !command.confusion.empty());
  // Perplexity always refers to the targets without label smoothing.
  CrossEntropyOptions plain = setup.config.loss;
  plain.label_smoothing = 0;
  Outputs outputs;
  double plain_sum = 0;
  int64_t count = 0;
  const ValidationScore result = sum(score(setup, setup.data, 0, 1, command.mirror,
                                           [&](const Tensor& output, const Tensor& target) {
                                             if (ranking) ranking->add(output, target);
                                             if (!command.logits.empty()) outputs.add(output, target);
                                             if (!classifies || !text) return;
                                             const BatchScore batch = evaluate(output, target, plain);
                                             plain_sum += batch.loss_sum;
                                             count += batch.count;
                                           }),
                                     setup.task);
  print_notices(*setup.data);
  if (!command.confusion.empty()) write_output(command.confusion, ranking->csv(setup.data->class_names()));
  if (!command.logits.empty()) outputs.write(command.logits);
  std::vector<std::pair<std::string, double>> more;
  if (ranking && setup.data->classes() > 5) more.emplace_back("top5", ranking->top(5));
  if (classifies && text) more.emplace_back("perplexity", std::exp(plain_sum / static_cast<double>(count)));
  if (command.json) {
    nlohmann::ordered_json json = {{"split", command.split}, {"step", step}, {"loss", result.loss}};
    for (const auto& [name, value] : result.metrics) json[name] = value;
    for (const auto& [name, value] : more) json[name == "top5" ? "top5_accuracy" : name] = value;
    json["samples"] = result.samples;
    fmt::print("{}\n", json.dump());
    return 0;
  }
  fmt::print("{} step={} loss={:.6g}", command.split, step, result.loss);
  for (const auto& [name, value] : result.metrics) fmt::print(" {}={:.4f}", name, value);
  fmt::print(" samples={}\n", result.samples);
  std::string line;
  for (const auto& [name, value] : more)
    line += (line.empty() ? "" : " ") + name + "=" +
            (name == "top5" ? fmt::format("{:.4f}", value) : fmt::format("{:.6g}", value));
  if (!line.empty()) fmt::print("{}\n", line);
  return 0;
}

}  // namespace

Command add_eval(CLI::App& program) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* app = program.add_subcommand("eval", "loss and metrics of a run's newest checkpoint");
  app->add_option("run_dir", options->run_dir, "a run directory")->required();
  app->add_option("--split", options->split, "validation or test")
      ->check(CLI::IsMember({"validation", "test"}))
      ->capture_default_str();
  app->add_flag("--mirror", options->mirror,
                "of images: by the mean of the logits of each and its mirror image (test-time augmentation)");
  app->add_option("--confusion", options->confusion,
                  "of images: a .csv file to write, how often each class was taken for each");
  app->add_option("--logits", options->logits,
                  "a .safetensors file to write, with the logits and the targets of all samples in their order");
  app->add_flag("--json", options->json, "the score as JSON");
  options->device.add_to(*app);
  return {app, [options] {
            options->device.apply();
            return eval(*options);
          }};
}

}  // namespace elinvar
