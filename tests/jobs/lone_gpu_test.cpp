// A worker that is alone with a GPU: rank gradients, sums and digests stay there and have the same bits as on the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "comm/fields.h"
#include "elastic/ledger/step_facts.h"
#include "elastic/session/replay.h"
#include "tests/jobs/train_process.h"
#include "tools/config/config.h"
#include "tools/training/training.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/traffic.h"
#endif

namespace elinvar {
namespace {

#ifdef ELINVAR_EMULATION

const Device kGpu{DeviceKind::emulated};
constexpr int64_t kSteps = 4;

// Five virtual ranks, the last of which has no samples in the last batch of an epoch; most memory of a step is
// gradients.
std::string config(const std::string& more = "") {
  return fmt::format(R"([run]
steps = {}
batch_size = 5
virtual_ranks = 5
seed = 5
checkpoint_every = 2
log_every = 100
{}
[data]
kind = "synthetic"
size = 9
classes = 3
image_size = 4
threads = 0
[optimizer]
lr = 0.05
momentum = 0.9
clip_norm = 1.0
[ledger]
leaves = "all"
tensors_every = 2
[[model.layer]]
kind = "conv2d"
out = 24
[[model.layer]]
kind = "batch_norm"
[[model.layer]]
kind = "flatten"
[[model.layer]]
kind = "linear"
out = 96
[[model.layer]]
kind = "relu"
[[model.layer]]
kind = "linear"
)",
                     kSteps, more);
}

struct Steps {
  std::vector<std::string> facts;          // of each step
  std::vector<int64_t> bytes_to_host;      // in each step
  int64_t most_memory = 0, gradients = 0;  // bytes
};

// Steps as in the loop of a worker that is alone.
Steps steps_on(Device device, bool keeps, bool crowded = false) {
  const int64_t others = emulation::in_use;
  Training training(parse_config(config(), "lone.toml", {}), device);
  const Config& c = training.config();
  Replay replay(training.member(), 0);
  Member& member = replay.member();
  Steps result;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Cursor at = training.cursor(step, {});
    const int64_t before = emulation::bytes_to_host;
    emulation::peak_in_use = emulation::in_use.load();
    int64_t computed = 0;
    for (const int vrank : member.gradients().todo()) {
      if (crowded && step == 1 && computed == 3) {
        EXPECT_TRUE(member.gradients().move_to_cpu());
      }
      EXPECT_EQ(member.gradients().stay_on_device(), !crowded || step == 0 || (step == 1 && computed < 3));
      const bool stays = keeps && member.gradients().stay_on_device();
      GradientSink sink(stays ? GradientSink::Place::device : GradientSink::Place::cpu);
      RankFacts facts = training.rank_gradient(training.loader.batch(at, vrank), step, vrank, sink);
      RankGradient rank = sink.take(std::move(facts));
      for (const Tensor& gradient : rank.gradients) {
        EXPECT_EQ(gradient.device(), stays ? device : Device{});
        if (computed == 0 && step == 0) result.gradients += gradient.bytes();
      }
      if (!rank.gradients.empty()) digest_rank_gradient(rank, step, c.ledger_options(), c.run.virtual_ranks);
      member.gradients().add(step, vrank, std::move(rank), 0);
      ++computed;
    }
    member.gradients().contribute(std::nullopt);
    EXPECT_EQ(member.reduce(), Member::Progress::complete);
    const Reduced reduced = member.reduction().take_reduced();
    TensorsDigest gradient = digest_in_order(reduced.gradients, reduced.batch_statistics);
    const Update update = training.update(step, reduced);
    training.finish_update(step);
    const StepFacts facts = facts_of(reduced, std::move(gradient), step, c.ledger_options(), c.run.virtual_ranks);
    result.facts.push_back(fmt::format("{} {} {} {}", write_fields(facts).dump(), facts.digests, update.gradient_norm,
                                       digest(training.setup.state()).hex()));
    result.bytes_to_host.push_back(emulation::bytes_to_host - before);
    result.most_memory = std::max(result.most_memory, emulation::peak_in_use - others);
    replay.advance();
  }
  EXPECT_FALSE(member.gradients().move_to_cpu() && crowded) << "they are gone already";
  return result;
}

TEST(LoneGpu, ItsStepsAreThoseOfTheHostAndSendItSmallNumbersAlone) {
  const Steps host = steps_on(Device{}, false), sent = steps_on(kGpu, false), kept = steps_on(kGpu, true),
              made_way = steps_on(kGpu, true, true);
  EXPECT_EQ(sent.facts, host.facts);
  EXPECT_EQ(kept.facts, host.facts);
  EXPECT_EQ(made_way.facts, host.facts);
  EXPECT_GT(host.gradients, 100000);
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto s = static_cast<size_t>(step);
    EXPECT_GT(sent.bytes_to_host[s], 4 * sent.gradients) << "of each rank gradient, once";
    EXPECT_LT(kept.bytes_to_host[s], kept.gradients / 50) << "losses, norms and digests";
  }
  EXPECT_GT(made_way.bytes_to_host[3], 4 * sent.gradients);
  EXPECT_GT(kept.most_memory, sent.most_memory + sent.gradients) << "the leaves of the tree lie there";
}

class LoneGpuJob : public testing::Test, protected test::TrainRuns {};

// With less memory than steps need whose rank gradients stay on the device.
TEST_F(LoneGpuJob, GradientsWithoutRoomGoToTheHost) {
  folder_.write("job.toml", config());
  const auto run = [&](const std::string& name, const std::string& device, const std::vector<std::string>& before) {
    const std::vector<std::string> arguments = {"run",  folder_ / "job.toml", "--run-dir", folder_ / name, "--device",
                                                device, "--threads",          "1"};
    return wait(spawn(arguments, name, before), name);
  };
  const auto with_memory = [](int64_t bytes) {
    return std::vector<std::string>{"env", fmt::format("ELINVAR_EMULATED_MEMORY={}", bytes)};
  };
  EXPECT_EQ(run("host", "cpu", {}).code, 0);
  const Steps kept = steps_on(kGpu, true);
  const test::Ended tight = run("tight", "emulated", with_memory(kept.most_memory - kept.gradients / 2));
  EXPECT_EQ(tight.code, 0) << tight.err;
  EXPECT_EQ(ledger("tight"), ledger("host"));
  EXPECT_EQ(digests("tight"), digests("host"));
  const test::Ended none = run("none", "emulated", with_memory(kept.gradients));
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("emulated"), std::string::npos) << none.err;
}

#endif

}  // namespace
}  // namespace elinvar
