// Two runs, and the op in which they part: found in real runs of programs that differ in one kernel.
#include "tests/repro_runs.h"
#include "tensor/isa.h"
#include "tools/repro/trace_file.h"

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
       {"conv2d", "conv2d_grad_filter", "batch_statistics", "batch_norm_gradient", "dropout", "column_sum", "matmul",
        "cross_entropy_backward", "add_to", "mul_into", "square_sum", "sgd", "update_running"})
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
  EXPECT_EQ(fs::path(answer.at("b").at("program").get<std::string>()).parent_path().filename(), "faulty");
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

}  // namespace
}  // namespace elinvar
