// Two runs and the op at which they diverge, found in real runs of programs that differ in one kernel.
#include <chrono>
#include <thread>

#include "tensor/base/file.h"
#include "tensor/isa.h"
#include "tests/jobs/repro_runs.h"
#include "tools/repro/side.h"
#include "tools/trace/trace_file.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Bisect : public test::ReproRuns {
 protected:
  Json bisect(const std::string& a, const std::string& b, int code) const {
    return repro({"bisect", path(a), path(b), "--out", path("op.safetensors"), "--json"}, code);
  }
};

TEST_F(Bisect, TheOpsOfAStepAreTheSameWhereverItIsDone) {
  train("run");
  const auto traced = [&](const std::vector<std::string>& with) {
    std::vector<std::string> arguments = {"trace", path("run"), "--step", "11", "--out", path("trace.jsonl")};
    arguments.insert(arguments.end(), with.begin(), with.end());
    repro(arguments, 0);
    return read_trace(path("trace.jsonl"));
  };
  const Trace reference = traced({"--isa", "scalar", "--threads", "1"});
  EXPECT_EQ(reference.header.at("from"), 8);
  EXPECT_EQ(reference.facts.size(), 3u);
  std::set<std::string> names, phases;
  for (const TracedOp& op : reference.ops) {
    names.insert(op.name);
    phases.insert(op.phase);
  }
  for (const char* name :
       {"conv2d", "conv2d_grad_filter", "batch_norm_of_batch", "batch_norm_gradient", "dropout", "column_sum", "matmul",
        "cross_entropy_backward", "add_to", "mul_into", "square_sum", "sgd", "running_mean"})
    EXPECT_TRUE(names.contains(name)) << name;
  for (const char* phase : {"leaf 0 forward", "leaf 2 backward", "reduction", "update"})
    EXPECT_TRUE(phases.contains(phase)) << phase;

  std::vector<std::vector<std::string>> others = {{"--threads", "2"}, {"--from", "0"}};
  for (const Isa isa : available_isas()) others.push_back({"--isa", name_of(isa), "--threads", "3"});
#ifdef ELINVAR_EMULATION
  others.push_back({"--device", "emulated"});
#endif
  for (const auto& other : others) {
    const Parting parting = first_parting(reference, traced(other));
    EXPECT_EQ(parting.what, Parting::What::nothing)
        << other[0] << " " << other[1] << ": op " << parting.op << ", " << parting.value;
  }
}

TEST_F(Bisect, AKernelThatAddsUpInAnotherOrderIsNamed) {
  train("a");
  train("b", {}, "faulty/");
  const Json answer = bisect("a", "b", 1);
  EXPECT_EQ(answer.at("verdict"), "op") << answer.dump(2);
  EXPECT_EQ(answer.at("op").at("name"), "column_sum");
  EXPECT_EQ(fs::path(answer.at("done_again").at("b").at("program").get<std::string>()).parent_path().filename(),
            "faulty");
  EXPECT_GT(answer.at("difference").at("tensors").at(0).at("differing"), 0);

  const std::vector<std::string> replay = {"replay", path("op.safetensors"), "--json"};
  Json sides = repro(replay, 0).at("sides");
  EXPECT_TRUE(sides.at("a").at("equal"));
  EXPECT_FALSE(sides.at("b").at("equal"));
  sides = repro(replay, 0, "faulty/").at("sides");
  EXPECT_FALSE(sides.at("a").at("equal"));
  EXPECT_TRUE(sides.at("b").at("equal"));
  std::vector<std::string> scalar = replay;
  scalar.insert(scalar.end(), {"--isa", "scalar", "--threads", "2"});
  EXPECT_TRUE(repro(scalar, 0).at("sides").at("a").at("equal"));
#ifdef ELINVAR_EMULATION
  std::vector<std::string> emulated = replay;
  emulated.insert(emulated.end(), {"--device", "emulated"});
  EXPECT_TRUE(repro(emulated, 0).at("sides").at("a").at("equal"));
#endif
}

TEST_F(Bisect, WhatNobodyCanReproduceIsATransientFault) {
  train("a");
  train("b", {"--chaos", "flip:worker=1,step=13,bit=3"});
  const Json answer = bisect("a", "b", 1);
  EXPECT_EQ(answer.at("verdict"), "transient") << answer.dump(2);
  EXPECT_EQ(answer.at("ledgers").at("divergence").at("step"), 13);
  EXPECT_EQ(answer.at("guilty"), "b");
  EXPECT_EQ(answer.at("wrong_step"), 13);
  EXPECT_FALSE(fs::exists(path("op.safetensors")));
  EXPECT_EQ(bisect("b", "a", 1).at("guilty"), "a");
}

TEST_F(Bisect, OtherSettingsAndEqualRunsNeedNoOps) {
  train("a", {"--steps", "6"});
  train("b", {"--steps", "6", "--workers", "2"});
  train("c", {"--steps", "6", "--set", "optimizer.lr=0.04"});
  EXPECT_EQ(bisect("a", "b", 0).at("verdict"), "equal");
  const Json answer = bisect("a", "c", 1);
  EXPECT_EQ(answer.at("verdict"), "configuration");
  EXPECT_EQ(answer.at("ledgers").at("settings").at(0).at("key"), "optimizer.lr");
}

// One of two workers has the faulty kernel; neither the ledger nor environment.json shows which.
TEST_F(Bisect, EachWorkersProgramIsTried) {
  train("a", {"--steps", "12"});
  const pid_t job = spawn({"run", path("job.toml"), "--run-dir", path("b"), "--threads", "1", "--steps", "12",
                           "--workers", "1", "--min-workers", "2", "--any-build"},
                          "job");
  for (int i = 0; i < 6000 && !fs::exists(path("b") + "/coordinator.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t other = spawn_program("faulty/train", {"join", endpoint("b"), "--threads", "1"}, "other");
  ASSERT_EQ(wait(job, "job").code, 0) << read_file(folder_ / "job.err");
  ASSERT_EQ(wait(other, "other").code, 0);
  const Json answer = bisect("a", "b", 1);
  EXPECT_EQ(answer.at("a").at("ways").size(), 1u);
  EXPECT_EQ(answer.at("b").at("ways").size(), 2u) << answer.dump(2);
  EXPECT_EQ(answer.at("verdict"), "op") << answer.dump(2);
  EXPECT_EQ(answer.at("op").at("name"), "column_sum");
  EXPECT_EQ(fs::path(answer.at("done_again").at("b").at("program").get<std::string>()).parent_path().filename(),
            "faulty");
}

// If the programs were built again, results that cannot be reproduced are not attributed to either.
TEST_F(Bisect, AProgramOfAnotherBuildAccusesNobody) {
  train("a", {"--steps", "14"});
  train("b", {"--steps", "14", "--chaos", "flip:worker=1,step=13,bit=3"});
  EXPECT_EQ(bisect("a", "b", 1).at("guilty"), "b");
  const std::string file = path("b") + "/environment.json";
  Json environment = Json::parse(read_file(file));
  ASSERT_EQ(environment.at("program").get<std::string>().size(), 32u);
  environment["program"] = std::string(32, '0');
  replace_file(file, environment.dump());
  const Json answer = bisect("a", "b", 1);
  EXPECT_EQ(answer.at("verdict"), "unknown") << answer.dump(2);
  EXPECT_FALSE(answer.contains("guilty"));
  EXPECT_NE(answer.at("text").get<std::string>().find("is not of the build that made it: --binary-b names"),
            std::string::npos)
      << answer.at("text");
  EXPECT_EQ(answer.at("a").at("lacks"), Json::array());
  EXPECT_EQ(answer.at("b").at("lacks").size(), 1u);
  repro({"bisect", path("a"), path("b"), "--binary-b", path("none"), "--json"}, 2);
}

TEST_F(Bisect, DamageIsNotEqual) {
  train("a", {"--steps", "6"});
  fs::copy(path("a"), path("b"), fs::copy_options::recursive);
  std::string text = ledger("b");
  text[text.size() / 2] ^= 1;
  replace_file(path("b") + "/ledger.jsonl", text);
  EXPECT_EQ(bisect("a", "b", 3).at("verdict"), "equal") << "as far as can be told";
}

// A GPU is identified by its model; its index only shows its slot.
TEST(Side, StepsAreDoneAgainOnADeviceOfTheSameKind) {
  const auto on = [](const char* device, const char* model) {
    Json environment = {{"device", device}};
    if (*model) environment["gpu"] = {{"model", model}};
    return environment;
  };
  const auto matched = [](const Json& environment, const std::vector<std::string>& gpus) {
    const DeviceMatch match = match_device(environment, gpus);
    return std::pair(match.device, match.lack);
  };
  using Match = std::pair<std::string, std::string>;
  EXPECT_EQ(matched(on("cpu", ""), {"H200"}), Match("cpu", ""));
  EXPECT_EQ(matched(on("cuda:3", "H200"), {"H200"}), Match("cuda:0", ""));
  EXPECT_EQ(matched(on("cuda:0", "H200"), {"A100", "H200"}), Match("cuda:1", ""));
  EXPECT_EQ(matched(on("cuda:1", "H200"), {"A100"}), Match("cuda:0", "this machine has no H200"));
  EXPECT_EQ(matched(on("cuda:1", "H200"), {}), Match("cpu", "this machine has no H200"));
  EXPECT_EQ(matched(on("abacus", ""), {}), Match("cpu", "this machine has no abacus"));
}

// It must not use a program of that name in the current folder.
TEST_F(Bisect, WhereNothingTellsTheProgramItsOwnIsTaken) {
  train("a", {"--steps", "2"});
  replace_file(path("a") + "/environment.json", R"({"device": "cpu", "isa": "scalar", "threads": 1})");
  const Side side("a", path("a"), "");
  EXPECT_EQ(side.environments().at(0).program.string(), fs::read_symlink("/proc/self/exe").string());
  ASSERT_FALSE(side.lacks().empty());
  EXPECT_EQ(side.lacks()[0],
            "environment.json does not tell its program, this one takes its place: --binary-a names the repro of its "
            "build");
}

// A run whose imported weights are missing cannot be repeated from its beginning.
TEST_F(Bisect, AnImportedStateThatIsDamagedIsNoNewNetwork) {
  train("run", {"--steps", "6"});
  const std::vector<std::string> trace = {"trace", path("run"), "--step", "3", "--out", path("t"), "--json"};
  EXPECT_EQ(repro(trace, 0).at("from"), 0);
  folder_.write("run/checkpoints/step-0/manifest.json", "{");
  repro(trace, 3);
}

}  // namespace
}  // namespace elinvar
