// `repro diff` on real runs: equal ones whatever happened to them, and divergences that are planted one by one and each
// found where they are.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <set>

#include "elastic/checkpoint/checkpoint.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/run/run_record.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Ended;

class Repro : public testing::Test, protected test::TrainRuns {
 protected:
  static constexpr int64_t kSteps = 12;
  static constexpr int kVranks = 3;

  void SetUp() override {
    folder_.write("job.toml", test::text_of({.steps = kSteps,
                                             .batch_size = 6,
                                             .virtual_ranks = kVranks,
                                             .checkpoint_every = 4,
                                             .state_digest_every = 1,
                                             .samples = 22,
                                             .image_size = 4,
                                             .channels = 4,
                                             .run = "log_every = 100\nkeep = 10\n",
                                             .data = "threads = 0\n"}) +
                                  "[ledger]\nleaves = \"all\"\n");
  }

  pid_t start(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {
        "run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1", "--set", "optimizer.momentum=0.9"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spawn(arguments, name);
  }
  void run(const std::string& name, const std::vector<std::string>& more = {}) const {
    const Ended ended = wait(start(name, more), name);
    ASSERT_EQ(ended.code, 0) << name << ended.err;
  }

  Ended repro(std::vector<std::string> arguments) const {
    return wait(spawn_program("repro", std::move(arguments), "repro"), "repro");
  }
  // The comparison as JSON, with its exit code.
  Json diff(const std::string& a, const std::string& b, int code) const {
    const Ended ended = repro({"diff", folder_ / a, folder_ / b, "--json"});
    EXPECT_EQ(ended.code, code) << ended.out << ended.err;
    return Json::parse(ended.out, nullptr, false);
  }

  // A divergence that is planted in the run `name`, and where it has to be found.
  struct Expected {
    int64_t step;
    std::string phase;
    std::vector<int> vranks = {};           // {}: whichever
    std::vector<std::string> tensors = {};  // {}: whichever
    std::string cause = {};                 // "": nothing explains it
  };
  void expect(const std::string& name, const Expected& expected) const {
    SCOPED_TRACE(name);
    const Json found = diff("base", name, 1);
    ASSERT_TRUE(found.is_object() && found.contains("divergence"));
    const Json& d = found["divergence"];
    EXPECT_EQ(d["step"], expected.step) << d;
    EXPECT_EQ(d["phase"], expected.phase) << d;
    EXPECT_EQ(d["doubts"], Json::array()) << d;
    if (!expected.vranks.empty()) {
      EXPECT_EQ(d["virtual_ranks"], expected.vranks) << d;
    }
    std::vector<std::string> tensors;
    for (const Json& tensor : d["tensors"]) tensors.push_back(tensor["name"]);
    if (!expected.tensors.empty()) {
      EXPECT_EQ(tensors, expected.tensors) << d;
    }
    EXPECT_EQ(found["verdict"], expected.cause.empty() ? "violation" : "explained");
    std::vector<std::string> causes;
    for (const Json& setting : found["settings"])
      if (setting["likely"]) causes.push_back(setting["key"]);
    EXPECT_EQ(causes, expected.cause.empty() ? std::vector<std::string>() : std::vector<std::string>{expected.cause});
  }

  // Where in the tensors of a layout a bit lies, counted through all of them.
  struct Spot {
    std::string tensor;
    int64_t element;
    int bit;
  };
  static Spot spot_of(const std::vector<TensorLayout>& layout, const std::string& prefix, int64_t bit) {
    int64_t total = 0;
    for (const TensorLayout& t : layout)
      if (t.name.starts_with(prefix)) total += 32 * t.numel();
    bit %= total;
    for (const TensorLayout& t : layout) {
      if (!t.name.starts_with(prefix)) continue;
      if (bit < 32 * t.numel()) return {t.name, bit / 32, static_cast<int>(bit % 32)};
      bit -= 32 * t.numel();
    }
    return {};
  }
};

TEST_F(Repro, RunsOfAnyWorkersThatAreKilledAreEqual) {
  run("base");
  run("two", {"--workers", "2", "--chaos", "kill:worker=1,step=5"});
  run("three", {"--workers", "3", "--chaos", "kill:worker=2,step=3;kill:worker=3,step=8;join:step=4"});
  run("five", {"--workers", "5", "--chaos", "kill:worker=5,step=2;drain:worker=1,step=7"});
  run("short", {"--steps", "7"});
  run("sparse",
      {"--set", "run.state_digest_every=5", "--set", "ledger.leaves=none", "--set", "ledger.tensors_every=0"});
  for (const char* other : {"base", "two", "three", "five", "sparse"}) {
    const Json found = diff("base", other, 0);
    EXPECT_EQ(found["verdict"], "equal") << other;
    EXPECT_EQ(found["common_steps"], kSteps) << other;
    EXPECT_FALSE(found.contains("divergence")) << other;
  }
  const Json found = diff("short", "two", 0);
  EXPECT_EQ(found["common_steps"], 7);
  EXPECT_EQ(found["lengths"], (Json{7, kSteps}));
  const Ended text = repro({"diff", folder_ / "base", folder_ / "two"});
  EXPECT_EQ(text.out, "equal: steps 1 to 12, and the state after 12 of them\n");

  const Ended env = repro({"env", folder_ / "five", "--json"});
  EXPECT_EQ(env.code, 0) << env.err;
  const Json environment = Json::parse(env.out);
  ASSERT_EQ(environment["workers"].size(), 5u);
  std::set<int> ids;
  for (const Json& worker : environment["workers"]) {
    ids.insert(worker["id"].get<int>());
    EXPECT_TRUE(worker["environment"].contains("libraries"));
  }
  EXPECT_EQ(ids, (std::set<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(repro({"env", folder_ / "base", folder_ / "base"}).code, 0);
  EXPECT_NE(repro({"env", folder_ / "base"}).out.find("libraries.glibc: "), std::string::npos);

  const Ended digests = repro({"digest", folder_ / "base", "--json"});
  EXPECT_EQ(digests.code, 0) << digests.err;
  const Json last = Json::parse(digests.out)["digests"].back();
  EXPECT_EQ(last["what"], "state after step 12");
  EXPECT_EQ(last["digest"], RunRecord(folder_ / "base").state(kSteps)->hex());
}

TEST_F(Repro, AFlippedBitIsFoundInItsTensor) {
  run("base");
  const DigestHeader layout = *RunRecord(folder_ / "base").digest_header();
  struct Plant {
    const char* what;
    int64_t step, bit;
  };
  for (const Plant& p : std::vector<Plant>{{"parameter", 4, 3},
                                           {"parameter", 1, 32 * 7 + 22},
                                           {"parameter", 8, 32 * 150 + 1},
                                           {"parameter", 11, 32 * 90},
                                           {"optimizer", 4, 5},
                                           {"optimizer", 6, 32 * 60 + 20},
                                           {"optimizer", 12, 32 * 113 + 9}}) {
    const std::string name = fmt::format("{}-{}", p.what, p.step), prefix = p.what[0] == 'p' ? "model." : "optimizer.";
    run(name, {"--chaos", fmt::format("flip:worker=0,step={},bit={},what={}", p.step, p.bit, p.what)});
    const Spot spot = spot_of(layout.state, prefix, p.bit);
    expect(name, {p.step, "update", {}, {spot.tensor}});
    if (p.step % 4 != 0) continue;
    // There is a checkpoint of that very step: the element, too, is found.
    const Json checkpoint = diff("base", name, 1)["checkpoint"];
    ASSERT_EQ(checkpoint["step"], p.step) << name;
    ASSERT_EQ(checkpoint["tensors"].size(), 1u) << name;
    const Json& tensor = checkpoint["tensors"][0];
    EXPECT_EQ(tensor["name"], spot.tensor);
    EXPECT_EQ(tensor["differing"], 1);
    EXPECT_EQ(tensor["pattern"], "one element");
    const auto bits = [&](int side) {
      return std::stoul(tensor["first"]["bits"][static_cast<size_t>(side)].get<std::string>(), nullptr, 16);
    };
    EXPECT_EQ(bits(0) ^ bits(1), 1ul << spot.bit) << tensor;
    EXPECT_EQ(tensor["first"]["ulps"], 1ul << spot.bit) << tensor;
  }
}

TEST_F(Repro, AFlippedBitOfALeafOrASumIsFoundInItsTensor) {
  run("base");
  const DigestHeader layout = *RunRecord(folder_ / "base").digest_header();
  struct Plant {
    const char *what, *phase;
    int64_t step, bit;
    int workers, worker;
    std::vector<int> vranks;
  };
  for (const Plant& p : std::vector<Plant>{{"leaf", "leaf", 1, 0, 1, 0, {0}},
                                           {"leaf", "leaf", 5, 32 * 40 + 11, 1, 0, {0}},
                                           {"leaf", "leaf", 7, 32 * 111 + 22, 1, 0, {0}},
                                           {"leaf", "leaf", 3, 17, 3, 2, {1}},
                                           {"leaf", "leaf", 10, 32 * 5, 3, 3, {2}},
                                           {"reduced", "reduction", 1, 2, 1, 0, {}},
                                           {"reduced", "reduction", 6, 32 * 77 + 31, 1, 0, {}},
                                           {"reduced", "reduction", 9, 32 * 115, 2, 0, {}},
                                           {"reduced", "reduction", 12, 32 * 12 + 9, 1, 0, {}},
                                           {"input", "data", 1, 1, 1, 0, {0}},
                                           {"input", "data", 6, 32 * 50 + 7, 1, 0, {0}},
                                           {"input", "data", 9, 32 * 9 + 21, 3, 3, {2}}}) {
    const std::string name = fmt::format("{}-{}", p.what, p.step);
    run(name, {"--workers", std::to_string(p.workers), "--chaos",
               fmt::format("flip:worker={},step={},bit={},what={}", p.worker, p.step, p.bit, p.what)});
    std::vector<std::string> tensors = {"input"};
    if (p.phase != std::string("data")) tensors = {spot_of(layout.gradient, "", p.bit).tensor};
    // Of several workers each has one leaf, which leaves gradient by gradient, that of the last layer first.
    if (p.phase == std::string("leaf") && p.workers > 1) tensors = {"4.weight"};
    expect(name, {p.step, p.phase, p.vranks, tensors});
  }
  // Where a ledger names a leaf or two, another may be what differs.
  run("few", {"--set", "ledger.leaves=none"});
  run("few-leaf", {"--set", "ledger.leaves=none", "--chaos", "flip:worker=0,step=5,bit=3"});
  const Json d = diff("few", "few-leaf", 1)["divergence"];
  EXPECT_EQ(d["step"], 5);
  EXPECT_EQ(d["phase"], "reduction");
  ASSERT_EQ(d["doubts"].size(), 1u);
  EXPECT_EQ(d["tensors"][0]["name"], layout.gradient[0].name);
}

TEST_F(Repro, AnotherSettingIsNamedAsTheCause) {
  run("base");
  const auto planted = [&](const std::string& name, const std::vector<std::string>& settings,
                           const Expected& expected) {
    std::vector<std::string> more;
    for (const std::string& setting : settings) more.insert(more.end(), {"--set", setting});
    run(name, more);
    expect(name, expected);
  };
  planted("seed", {"run.seed=6"}, {1, "data", {}, {}, "run.seed"});
  planted("order", {"data.shuffle=false"}, {1, "data", {}, {}, "data.shuffle"});
  planted("data", {"data.noise=0.5"}, {1, "data", {0, 1, 2}, {"input"}, "data.noise"});
  planted("batch", {"run.batch_size=7"}, {1, "data", {}, {}, "run.batch_size"});
  planted("ranks", {"run.virtual_ranks=2"}, {1, "data", {}, {}, "run.virtual_ranks"});
  planted("smoothing", {"loss.label_smoothing=0.1"}, {1, "forward", {0, 1, 2}, {}, "loss.label_smoothing"});
  planted("lr", {"optimizer.lr=0.051"}, {1, "update", {}, {}, "optimizer.lr"});
  planted("momentum", {"optimizer.momentum=0.8"}, {2, "update", {}, {}, "optimizer.momentum"});
  planted("decay", {"optimizer.weight_decay=0.1"}, {1, "update", {}, {}, "optimizer.weight_decay"});
  planted("ignore", {"loss.ignore_index=1"}, {1, "forward", {}, {}, "loss.ignore_index"});
  // The rate differs in one step, and with it what follows.
  run("step", {"--set", "schedule.kind=step", "--set", "schedule.milestones=[20]"});
  run("step-7", {"--set", "schedule.kind=step", "--set", "schedule.milestones=[6]"});
  const Json found = diff("step", "step-7", 1);
  EXPECT_EQ(found["verdict"], "explained");
  EXPECT_EQ(found["divergence"]["step"], 7);
  EXPECT_EQ(found["divergence"]["phase"], "update");
  EXPECT_EQ(found["divergence"]["fields"][0], "lr");
  EXPECT_EQ(found["settings"][0]["key"], "schedule.milestones");
  // A setting that cannot be why explains nothing.
  run("both", {"--set", "run.steps=11", "--set", "optimizer.clip_norm=1e6", "--chaos",
               "flip:worker=0,step=5,bit=3,what=input"});
  const Json both = diff("base", "both", 1);
  EXPECT_EQ(both["verdict"], "violation");
  EXPECT_EQ(both["divergence"]["step"], 5);
  EXPECT_EQ(both["settings"][0]["key"], "optimizer.clip_norm");
  EXPECT_EQ(both["settings"][0]["likely"], false);
}

// What is planted in the files: the ledger of `base`, told otherwise.
class ReproFiles : public Repro {
 protected:
  void SetUp() override {
    Repro::SetUp();
    run("base");
    lines_ = test::lines_of(ledger("base"));
  }
  // The run `name`: a copy of the base with these lines in its ledger.
  void tell(const std::string& name, const std::vector<std::string>& lines) const {
    fs::copy(folder_ / "base", folder_ / name, fs::copy_options::recursive);
    replace_file(folder_ / name / "ledger.jsonl", fmt::format("{}\n", fmt::join(lines, "\n")));
  }
  template <class F>
  void tell(const std::string& name, int64_t step, F change) const {
    std::vector<std::string> lines = lines_;
    LedgerLine line = LedgerLine::parse(lines[static_cast<size_t>(step)]);
    change(line);
    lines[static_cast<size_t>(step)] = line.text();
    tell(name, lines);
  }
  std::vector<std::string> lines_;
};

TEST_F(ReproFiles, EveryFactCounts) {
  tell("batch", 3, [](LedgerLine& line) { line.batch.low ^= 1; });
  tell("loss", 4, [](LedgerLine& line) { line.loss = std::nextafter(line.loss, 0.0); });
  tell("leaf", 5, [](LedgerLine& line) { line.leaves[2].high ^= 1; });
  tell("gradient", 6, [](LedgerLine& line) { line.gradient.low ^= 1; });
  tell("rate", 7, [](LedgerLine& line) { line.lr = std::nextafter(line.lr, 1.0); });
  tell("state", 9, [](LedgerLine& line) { line.state->low ^= 1; });
  expect("batch", {3, "data"});
  expect("loss", {4, "forward"});
  expect("leaf", {5, "leaf", {2}});
  expect("gradient", {6, "reduction"});
  expect("rate", {7, "update"});
  expect("state", {9, "update"});
}

TEST_F(ReproFiles, LinesThatAreMissingOrDamagedLeaveTheOthersToCompare) {
  std::vector<std::string> lines = lines_;
  lines.erase(lines.begin() + 5);
  tell("missing", lines);
  Json found = diff("base", "missing", 3);
  EXPECT_EQ(found["verdict"], "equal");
  EXPECT_EQ(found["common_steps"], kSteps - 1);
  EXPECT_EQ(found["damage"]["b"][0]["line"], 6);
  lines = lines_;
  lines.insert(lines.begin() + 5, lines[4]);
  tell("twice", lines);
  EXPECT_EQ(diff("base", "twice", 3)["common_steps"], kSteps);
  lines = lines_;
  lines[7][20] = lines[7][20] == '0' ? '1' : '0';
  tell("damaged", lines);
  found = diff("damaged", "base", 3);
  EXPECT_EQ(found["common_steps"], kSteps - 1);
  EXPECT_EQ(found["damage"]["a"][0]["line"], 8);
  const Ended text = repro({"diff", folder_ / "damaged", folder_ / "base"});
  EXPECT_NE(text.out.find("but lines are damaged, and their steps not compared"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("A: ledger.jsonl, line 8: its checksum is "), std::string::npos) << text.out;
  // A crash is no damage: what is there is compared.
  tell("torn", lines_);
  fs::resize_file(folder_ / "torn/ledger.jsonl", ledger("base").size() - 5);
  EXPECT_EQ(diff("base", "torn", 0)["common_steps"], kSteps - 1);
  tell("empty", {});
  fs::resize_file(folder_ / "empty/ledger.jsonl", 0);
  fs::remove_all(folder_ / "empty/checkpoints");
  EXPECT_EQ(diff("base", "empty", 3)["verdict"], "unknown");
  fs::remove(folder_ / "empty/ledger.jsonl");
  EXPECT_EQ(repro({"diff", folder_ / "base", folder_ / "empty"}).code, 2);
  EXPECT_EQ(repro({"diff", folder_ / "base"}).code, 2);
}

TEST_F(ReproFiles, WhatTheContractAllowsIsToldApart) {
  std::vector<std::string> lines = lines_;
  LedgerHeader header = LedgerHeader::parse(lines[0]);
  header.numerics_version += 1;
  lines[0] = header.text();
  LedgerLine line = LedgerLine::parse(lines[5]);
  line.loss += 1;
  lines[5] = line.text();
  tell("version", lines);
  const Json found = diff("base", "version", 1);
  EXPECT_EQ(found["verdict"], "allowed");
  EXPECT_EQ(found["divergence"]["step"], 5);
  EXPECT_NE(found["allows"][0].get<std::string>().find("versions 1 and 2 of the numerics"), std::string::npos);
}

// States that differ in chosen places.
TEST_F(ReproFiles, PatternsAreNamed) {
  tell("state", 4, [](LedgerLine& line) { line.state->low ^= 1; });
  const auto pattern = [&](const std::function<void(StateDict&)>& change) {
    StateDict a = {{"model.a", Tensor::full({16, 12}, 1)},
                   {"model.conv", Tensor::full({8, 3, 3, 4}, 1)},
                   {"model.x", Tensor::full({7}, 1)},
                   {"optimizer.a.momentum", Tensor::full({16, 12}, 1)}},
              b;
    for (const auto& [name, tensor] : a) b.emplace(name, tensor.clone());
    change(b);
    for (const auto& [name, state] : {std::pair("base", &a), std::pair("state", &b)}) {
      fs::remove_all(folder_ / name / "checkpoints");
      CheckpointStore store(folder_ / name / "checkpoints");
      store.prepare();
      store.write(4, *state, digest(*state));
    }
    const Json checkpoint = diff("base", "state", 1)["checkpoint"];
    std::string text = checkpoint["pattern"];
    for (const Json& tensor : checkpoint["tensors"]) text += ", " + tensor["pattern"].get<std::string>();
    return text;
  };
  const auto at = [](StateDict& state, const char* name, int64_t element) -> float& {
    return state.at(name).data<float>()[element];
  };
  EXPECT_EQ(pattern([&](StateDict& s) { at(s, "model.x", 3) = 2; }), "one element of one tensor, one element");
  EXPECT_EQ(pattern([&](StateDict& s) {
              at(s, "model.a", 3) = 2;
              at(s, "optimizer.a.momentum", 3) = 2;
            }),
            "one element of one parameter and of what the optimizer keeps of it, one element, one element");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t i = 2; i < 9; ++i) at(s, "model.a", 5 * 12 + i) = 2;
            }),
            "row 5 of one tensor, row 5");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t i = 0; i < 16; ++i) at(s, "model.a", 12 * i + 7) = 2;
            }),
            "column 7 of one tensor, column 7");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t i = 0; i < 36; ++i) at(s, "model.conv", 2 * 36 + i) = 2;
            }),
            "output channel 2 of one tensor, output channel 2");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (int64_t row = 4; row < 8; ++row)
                for (int64_t column = 8; column < 12; ++column) at(s, "model.a", 12 * row + column) = 2;
            }),
            "a tile, 4 to 7 x 8 to 11 of one tensor, a tile, 4 to 7 x 8 to 11");
  EXPECT_EQ(pattern([&](StateDict& s) {
              for (auto& [name, tensor] : s)
                for (float& x : tensor.span<float>()) x = 3;
            }),
            "everything, all of it, all of it, all of it, all of it");
  // Distances: 1 to 2 are 2^23 numbers; of a NaN there is none.
  (void)pattern([&](StateDict& s) {
    at(s, "model.x", 0) = std::nextafter(1.0f, 2.0f);
    at(s, "model.x", 1) = std::bit_cast<float>(std::bit_cast<uint32_t>(1.0f) + 3);
    at(s, "model.x", 2) = 2;
    at(s, "model.x", 3) = std::nanf("");
  });
  const Ended text = repro({"diff", folder_ / "base", folder_ / "state"});
  EXPECT_NE(text.out.find("at [0] 1 and 1.0000001, bits 3f800000 and 3f800001, 1 ulps"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("elements x ulps: 1 x 1, 1 x 2-3, 1 x 2^23-2^24"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("1 where one of the two is no number"), std::string::npos) << text.out;
}

}  // namespace
}  // namespace elinvar
