// `train run --dry-run` for workers with GPUs: what it says of their memory, compared with what the tensors of real
// jobs take there; and for GPUs that are not here.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/jobs/train_command.h"
#include "tests/support/other_devices.h"

namespace elinvar {
namespace {

using test::Ended;
using test::TrainCommand;
using Json = nlohmann::json;

// Parameters, the optimizer's state, gradients and activations each are a large part of a worker's memory.
constexpr const char* kGpt = R"([run]
steps = 100000
batch_size = 2
virtual_ranks = 2
log_every = 1000
[data]
kind = "synthetic_text"
size = 2000
context = 256
threads = 0
[optimizer]
kind = "adamw"
lr = 0.001
[model]
kind = "gpt"
layers = 2
heads = 4
channels = 64
virtual_shards = 2
)";

// Activations are a small part of a worker's memory, and no segment is a large part of the network.
std::string thin() {
  std::string config = kGpt;
  for (const auto& [from, to] : {std::pair("context = 256", "context = 32"), std::pair("layers = 2", "layers = 4"),
                                 std::pair("channels = 64", "channels = 32")})
    config.replace(config.find(from), std::string(from).size(), to);
  return config;
}

class GpuForecast : public TrainCommand {
 protected:
  void SetUp() override {
    TrainCommand::SetUp();
    folder_.write("gpt.toml", kGpt);
    folder_.write("thin.toml", thin());
  }
  Ended dry(std::vector<std::string> more, const std::string& config = "gpt.toml") const {
    more.insert(more.begin(), {"--dry-run", "--json"});
    return run(config, "run", std::move(more));
  }
};

// Skipped on a machine with a GPU, where forecasts measure on it.
TEST_F(GpuForecast, TellsTheMemoryOfGpusThatAreNotHereAndNoTimes) {
  if (test::is_here({DeviceKind::cuda})) GTEST_SKIP() << "a GPU is here";
  const std::vector<std::string> eight = {"--workers", "8", "--device", "cuda"};
  const auto with = [&](const std::string& option, const std::string& value) {
    std::vector<std::string> words = eight;
    words.insert(words.end(), {option, value});
    return words;
  };
  const Ended ended = dry(with("--memory", "80GB"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json json = Json::parse(ended.out);
  EXPECT_EQ(json.at("memory_bytes"), 80e9);
  EXPECT_EQ(json.at("gpu").get<std::string>().find("absent: "), 0u);
  for (const Json& e : json.at("arrangements")) {
    EXPECT_FALSE(e.contains("seconds")) << e;
    EXPECT_GT(e.at("peak_bytes"), 6e8) << "CUDA alone takes as much";
    EXPECT_GT(e.at("host_bytes"), 1e6);
  }
  EXPECT_EQ(json.at("arrangements").at(0).at("zero"), 0) << "the simplest comes first";
  const Ended text = run("gpt.toml", "run", {"--dry-run", "--workers", "8", "--device", "cuda", "--memory", "80GB"});
  EXPECT_NE(text.out.find("no GPU is here"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("bound by"), std::string::npos) << text.out;
  EXPECT_EQ(dry(with("--memory", "500MB")).code, 1) << "none fits";

  const Ended shared = dry({"--workers", "8", "--device", "cuda:0", "--memory", "80GB"});
  ASSERT_EQ(shared.code, 0) << shared.err;
  EXPECT_EQ(Json::parse(shared.out).at("memory_bytes"), 10e9);

  const Ended unknown = dry(eight);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("--memory 80GB says it"), std::string::npos) << unknown.err;
  std::vector<std::string> inputs = with("--memory", "80GB");
  inputs.insert(inputs.end(), {"--offload", "host,inputs", "--set", "run.recompute=true"});
  const Ended offloaded = dry(inputs);
  EXPECT_EQ(offloaded.code, 2);
  EXPECT_NE(offloaded.err.find("is measured on one, and there is none here"), std::string::npos) << offloaded.err;
  for (const char* const name : {"cudax", "cuda:", "cuda:abc"}) {
    const Ended wrong = dry({"--workers", "2", "--device", name, "--memory", "80GB"});
    EXPECT_EQ(wrong.code, 2);
    EXPECT_NE(wrong.err.find("cuda:NUMBER expected"), std::string::npos) << wrong.err;
  }
  const Ended chosen = run("gpt.toml", "run", {"--workers", "2", "--device", "cuda", "--arrangement", "auto"});
  EXPECT_EQ(chosen.code, 2);
  EXPECT_NE(chosen.err.find("no GPU was found"), std::string::npos) << chosen.err;
}

// Skipped on a machine with a GPU, like the test above.
TEST_F(GpuForecast, OffloadedStateIsOnTheHost) {
  if (test::is_here({DeviceKind::cuda})) GTEST_SKIP() << "a GPU is here";
  const auto of = [&](const std::string& offload) {
    const Ended ended =
        dry({"--device", "cuda", "--memory", "80GB", "--offload", offload, "--set", "model.channels=512"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out);
  };
  const Json none = of("none"), host = of("host");
  const double state = 2 * 4 * none.at("parameters").get<double>();  // AdamW's
  const auto figure = [](const Json& json, const char* name) {
    return json.at("arrangements").at(0).at(name).get<double>();
  };
  // Two measurements of a process differ, and the forecast adds a share for what heaps keep: no two bytes are equal.
  EXPECT_NEAR(figure(host, "host_bytes") - figure(none, "host_bytes"), state, 0.1 * state);
  EXPECT_LT(figure(host, "peak_bytes"), figure(none, "peak_bytes"));
}

#ifdef ELINVAR_EMULATION

TEST_F(GpuForecast, TheJobTakesTheFastestThatFitsItsGpus) {
  const std::vector<std::string> gpus = {"--workers", "2", "--device", "emulated", "--set", "data.context=8"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), gpus.begin(), gpus.end());
    return words;
  };
  const Ended predicted = dry(with({"--memory", "1GB"}));
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const Json json = Json::parse(predicted.out);
  std::vector<double> peaks;
  for (const Json& e : json.at("arrangements")) peaks.push_back(e.at("peak_bytes"));
  const auto [least, most] = std::ranges::minmax(peaks);
  EXPECT_LT(least, 0.8 * most);
  const std::string between = std::to_string(std::lround(0.9 * least + 0.1 * most));
  const Ended ended =
      run("gpt.toml", "run", with({"--arrangement", "auto", "--copies", "1", "--memory", between, "--steps", "1"}));
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("zero="), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("(measured between processes)"), std::string::npos) << ended.out;
  EXPECT_EQ(run("gpt.toml", "none", with({"--arrangement", "auto", "--memory", "1MB"})).code, 2);
}

// `train check` measures the same network in the same way, on the GPU to within what its allocator keeps. Memory of the
// host differs more: it is that of two programs, of which the smaller part is the network's. Stages of a pipeline are
// cut by measured times, so theirs cannot be compared.
TEST_F(GpuForecast, CheckTellsWhatADryRunDoes) {
  const Ended predicted = dry({"--workers", "2", "--device", "emulated", "--memory", "1GB"});
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const Json json = Json::parse(predicted.out);
  for (const Json& e : json.at("arrangements")) {
    if (e.at("zero") > 0 && e.at("copies") == 2) continue;
    const std::string entries =
        fmt::format("tp={},pp={},zero={}", e.at("tp").get<int>(), e.at("pp").get<int>(), e.at("zero").get<int>());
    const Ended ended = train({"check", folder_ / "gpt.toml", "--workers", "2", "--copies", "1", "--device", "emulated",
                               "--arrangement", entries});
    ASSERT_EQ(ended.code, 0) << ended.err;
    double most = 0, host = 0;
    for (const std::string& line : test::lines_of(ended.out)) {
      if (line.starts_with("memory ")) most = std::max(most, std::stod(line.substr(13)));
      if (line.ends_with(" on its host")) host = std::max(host, std::stod(line.substr(13)));
    }
    EXPECT_GT(most, 0) << entries;
    if (e.at("pp") > 1) continue;
    EXPECT_NEAR(most, e.at("peak_bytes").get<double>() / (1 << 20), 0.05 * most) << entries << "\n" << ended.out;
    EXPECT_NEAR(host, e.at("host_bytes").get<double>() / (1 << 20), 0.2 * host) << entries << "\n" << ended.out;
  }
}

struct Arranged {
  const char* name;
  int tp, pp, zero, copies;
  bool group;  // of GPUs, which carries gradients or values
  const char* config = "gpt.toml";
};

class GpuForecastOf : public GpuForecast, public testing::WithParamInterface<Arranged> {};

// Returns the figure of the worker that has the most.
double most(const Json& status, const char* figure) {
  double most = 0;
  for (const Json& worker : status.at("workers")) most = std::max(most, worker.value(figure, 0.0));
  return most;
}

TEST_P(GpuForecastOf, TensorsOfAJobTakeNoMoreOfAGpuThanPredictedAndLittleLess) {
  const Arranged& a = GetParam();
  const std::vector<std::string> workers = {"--workers", "2", "--device", "emulated"};
  std::vector<std::string> planned = workers;
  planned.insert(planned.end(), {"--memory", "1GB"});
  const Ended predicted = dry(planned, a.config);
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  const Json json = Json::parse(predicted.out), &all = json.at("arrangements");
  const auto estimate = std::ranges::find_if(all, [&](const Json& e) {
    return e.at("tp") == a.tp && e.at("pp") == a.pp && e.at("zero") == a.zero &&
           (a.zero == 0 || e.at("copies") == a.copies);
  });
  ASSERT_NE(estimate, all.end());

  std::vector<std::string> words = {"run", folder_ / a.config, "--run-dir", folder_ / "run", "--threads", "1"};
  words.insert(words.end(), workers.begin(), workers.end());
  words.insert(words.end(),
               {"--min-workers", "2", "--arrangement", fmt::format("tp={},pp={},zero={}", a.tp, a.pp, a.zero),
                "--copies", std::to_string(a.copies)});
  const pid_t job = spawn(words, "run");
  // Steps, of the group if there is one, and then two heartbeats. The emulated GPU is slow.
  Json status;
  int64_t begun = 0;
  ASSERT_TRUE(until(
      [&] {
        status = this->status("run");
        if (status.empty()) return false;
        const int64_t step = status.value("step", int64_t{0});
        const bool grouped =
            !a.group || status.value("data_plane", Json::object()).dump().find("nccl") != std::string::npos;
        if (begun == 0 && step >= 2 && grouped) begun = step;
        return begun > 0 && step >= begun + 2;
      },
      std::chrono::seconds(400)));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  status = this->status("run");
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
  const Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  const double real = most(status, "gpu_peak_bytes"), foretold = estimate->at("peak_bytes");
  fmt::print("{}: predicted {:.3f} MB, real {:.3f} MB, {:+.1f} %; host {:.1f} MB, real {:.1f}\n", a.name,
             1e-6 * foretold, 1e-6 * real, 100 * (foretold / real - 1), 1e-6 * estimate->at("host_bytes").get<double>(),
             1e-6 * most(status, "resident_bytes"));
  EXPECT_GE(foretold, real);
  EXPECT_LE(foretold, 1.1 * real);
}

INSTANTIATE_TEST_SUITE_P(Arrangements, GpuForecastOf,
                         testing::Values(Arranged{"zero0", 1, 1, 0, 2, true}, Arranged{"zero1", 1, 1, 1, 1, true},
                                         Arranged{"zero2", 1, 1, 2, 1, true}, Arranged{"zero3", 1, 1, 3, 1, false},
                                         Arranged{"tp2", 2, 1, 0, 2, true},
                                         Arranged{"thin_pp2", 1, 2, 0, 2, true, "thin.toml"},
                                         Arranged{"thin_zero1", 1, 1, 1, 1, true, "thin.toml"}),
                         [](const auto& of_case) { return of_case.param.name; });

#endif

}  // namespace
}  // namespace elinvar
