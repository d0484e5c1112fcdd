#include "tests/jobs/tiny_job.h"

#include <signal.h>

#include <algorithm>
#include <map>

#include "comm/nccl.h"
#include "data/dataset.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/gpu_stream.h"
#include "tests/jobs/small_job.h"
#include "tools/config/config.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

// Returns the digest of a virtual rank's batch that consists of this sample alone.
Digest digest_of(const Dataset& data, int64_t index) {
  Shape shape = data.input_shape();
  shape.insert(0, 1);
  Tensor input = Tensor::empty(shape), target = Tensor::empty({1}, DType::i64);
  data.read(index, {}, {input.raw(), target.raw()});
  return digest(StateDict{{"input", input}, {"target", target}});
}

}  // namespace

void TinyJob::SetUp() {
  folder_.write("job.toml", text_of({.steps = kSteps,
                                     .batch_size = kBatch,
                                     .virtual_ranks = 3,
                                     .checkpoint_every = 40,
                                     .samples = kSamples,
                                     .image_size = 4,
                                     .channels = 4,
                                     .run = "log_every = 100\n" + run_,
                                     .data = "threads = 0\n",
                                     .optimizer = optimizer_,
                                     .network = network_}));
  const Ended whole = wait(start("whole"), "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  undisturbed_ = ledger("whole");
  ASSERT_EQ(recorded("whole"), kSteps);
}

pid_t TinyJob::start(const std::string& name, const std::vector<std::string>& more,
                     const std::vector<std::string>& before) const {
  std::vector<std::string> arguments = {"run", folder_ / "job.toml", "--run-dir", folder_ / name};
  if (std::find(more.begin(), more.end(), "--threads") == more.end())
    arguments.insert(arguments.end(), {"--threads", "1"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  return spawn(arguments, name, before);
}

std::string TinyJob::run_through(const std::string& name, std::vector<std::string> options) const {
  for (int part = 0; part < 20; ++part) {
    const Ended ended = wait(start(name, options), name, std::chrono::seconds(60));
    for (const char* word : {"Assertion", "terminate called", "src/", "invariant"})
      if (ended.err.find(word) != std::string::npos) return "a process broke: " + ended.err;
    const bool all_left = ended.code == 0 && recorded(name) < kSteps;
    if (ended.code == 0 && !all_left) {
      if (ledger(name) != undisturbed_) return "the ledger differs";
      if (digests(name) != digests("whole")) return "the digests differ";
      const std::string left = remaining_children(std::chrono::seconds(10));
      return left.empty() ? "" : "a worker does not end: " + left;
    }
    const bool again =
        all_left || ended.code == 128 + SIGKILL || ended.err.find("no worker is left") != std::string::npos;
    if (!again) return fmt::format("exit code {}: {}", ended.code, ended.err);
    if (part == 0) options.push_back("--resume");
  }
  return "it is killed again and again";
}

std::vector<LedgerLine> TinyJob::steps(const std::string& name) const {
  std::vector<LedgerLine> lines;
  for (const std::string& line : ledger_steps(folder_ / name / "ledger.jsonl"))
    lines.push_back(LedgerLine::parse(line));
  return lines;
}

std::vector<Json> TinyJob::events(const std::string& name, const std::string& field) const {
  std::vector<Json> all;
  if (!std::filesystem::exists(folder_ / name / "events.jsonl")) return all;
  for (const std::string& line : lines_of(read_file(folder_ / name / "events.jsonl"))) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains(field)) all.push_back(json);
  }
  return all;
}

std::vector<std::string> TinyJob::planes(const std::string& name) const {
  std::vector<std::string> planes;
  for (const Json& e : events(name, "plane")) {
    const std::string plane = e.at("plane");
    planes.push_back(plane + ": " + e.at(plane == "nccl" ? "carries" : "reason").get<std::string>());
  }
  return planes;
}

bool TinyJob::run_on_a_card(const std::string& name, std::vector<std::string> options, int64_t steps) const {
#ifdef ELINVAR_CUDA
  if (gpu_count<Cuda>() == 0 || !find_nccl({DeviceKind::cuda}).nccl) return false;
  const std::vector<std::string> length = {"--set", fmt::format("run.steps={}", steps)};
  const Ended alone = wait(start("alone", length), "alone", std::chrono::seconds(120));
  EXPECT_EQ(alone.code, 0) << alone.err;
  options.insert(options.end(), {"--device", "cuda", "--min-workers", "2"});
  options.insert(options.end(), length.begin(), length.end());
  const pid_t job = start(name, options, {"env", "NCCL_HOSTID=first"});
  const pid_t other = spawn({"join", endpoint(name), "--device", "cuda"}, "other", {"env", "NCCL_HOSTID=second"});
  const Ended ended = wait(job, name, std::chrono::seconds(120));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger(name), ledger("alone"));
  EXPECT_EQ(wait(other, "other").code, 0);
  return true;
#else
  static_cast<void>(name);
  static_cast<void>(options);
  static_cast<void>(steps);
  return false;
#endif
}

int64_t TinyJob::newest_checkpoint(const std::string& name) const {
  int64_t newest = 0;
  for (int64_t step = 1; step <= kSteps; ++step)
    if (std::filesystem::exists(folder_ / name / "checkpoints" / fmt::format("step-{}", step) / "manifest.json"))
      newest = step;
  return newest;
}

std::vector<std::vector<int64_t>> TinyJob::consumed(const std::string& name) const {
  const auto data = open_dataset(read_config(folder_ / "job.toml").data, Split::train);
  EXPECT_EQ(data->size(), kSamples);
  std::vector<Digest> digests;  // of each sample, followed by that of no sample
  for (int64_t i = 0; i < kSamples; ++i) digests.push_back(digest_of(*data, i));
  digests.push_back({});
  std::map<std::string, std::vector<int64_t>> batches;
  for (int64_t a = 0; a <= kSamples; ++a)
    for (int64_t b = 0; b <= kSamples; ++b)
      for (int64_t c = 0; c <= kSamples; ++c) {
        Hasher hasher;
        std::vector<int64_t> samples;
        for (const int64_t i : {a, b, c}) {
          hasher.add(digests[static_cast<size_t>(i)]);
          if (i < kSamples) samples.push_back(i);
        }
        EXPECT_TRUE(batches.emplace(hasher.digest().hex(), samples).second) << "samples must differ";
      }
  std::vector<std::vector<int64_t>> steps;
  for (const LedgerLine& line : this->steps(name)) {
    const auto found = batches.find(line.batch.hex());
    EXPECT_NE(found, batches.end()) << "no batch of the data fits step " << line.step;
    if (found == batches.end()) return {};
    steps.push_back(found->second);
  }
  return steps;
}

void TinyJob::expect_each_sample_once_an_epoch(const std::vector<std::vector<int64_t>>& consumed) const {
  ASSERT_EQ(consumed.size(), static_cast<size_t>(kSteps));
  std::vector<int64_t> epoch;
  for (size_t step = 0; step < consumed.size(); ++step) {
    epoch.insert(epoch.end(), consumed[step].begin(), consumed[step].end());
    const bool last = epoch.size() == static_cast<size_t>(kSamples);
    ASSERT_EQ(consumed[step].size(), static_cast<size_t>(last ? kSamples % kBatch : kBatch)) << "step " << step + 1;
    std::vector<int64_t> sorted = epoch;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << "a sample twice, step " << step + 1;
    if (last) epoch.clear();
  }
}

}  // namespace elinvar::test
