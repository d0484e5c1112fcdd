// Jobs with run.numerics = "fast": the same bits for any number of workers of one kind of GPU; other kinds are refused.
#ifdef ELINVAR_EMULATION
#include <gtest/gtest.h>

#include "elastic/ledger/ledger.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

class FastJob : public test::TinyJob {
 protected:
  pid_t start_fast(const std::string& name, const char* steps, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> options = {"--numerics", "fast", "--device", "emulated", "--steps", steps};
    options.insert(options.end(), more.begin(), more.end());
    return start(name, options);
  }
};

TEST_F(FastJob, AnyNumberOfWorkersOfOneKindGivesTheSameLedger) {
  const test::Ended alone = wait(start_fast("alone", "12"), "alone");
  ASSERT_EQ(alone.code, 0) << alone.err;
  const std::string whole = ledger("alone");
  EXPECT_EQ(recorded("alone"), 12);
  EXPECT_NE(whole.find(R"("numerics":"fast")"), std::string::npos);
  EXPECT_NE(steps("alone").at(0).gradient.hex(), steps("whole").at(0).gradient.hex()) << "no product was fast";
  EXPECT_EQ(steps("alone").at(0).batch.hex(), steps("whole").at(0).batch.hex());

  const test::Ended three = wait(start_fast("three", "12", {"--workers", "3", "--min-workers", "3"}), "three");
  EXPECT_EQ(three.code, 0) << three.err;
  EXPECT_EQ(ledger("three"), whole);
  const test::Ended coarse = wait(start_fast("tf32", "12", {"--set", "run.precision=tf32"}), "tf32");
  EXPECT_EQ(coarse.code, 0) << coarse.err;
  EXPECT_NE(steps("tf32").at(0).gradient.hex(), steps("alone").at(0).gradient.hex());
}

// Each architecture with bfloat16 activations: the same bits for one worker and three, and for a run that is stopped
// and resumed or that keeps only the inputs of blocks; the loss is close to the portable run's.
TEST_F(FastJob, NetworksOfEveryKind) {
  const std::string text = "[data]\nkind = \"synthetic_text\"\nsize = 30\ntokens = \"byte\"\ncontext = 16\n",
                    images = "[data]\nkind = \"synthetic\"\nsize = 24\nclasses = 3\nimage_size = 8\n";
  const std::string sizes = "layers = 2\nheads = 2\nchannels = 32\n";
  const std::vector<std::pair<std::string, std::string>> kinds = {
      {"gpt", text + "[model]\nkind = \"gpt\"\ndropout = 0.1\n" + sizes},
      {"llama", text + "[model]\nkind = \"llama\"\nkv_heads = 1\n" + sizes},
      {"resnet", images + "[model]\nkind = \"resnet\"\nblocks = [1, 1]\nwidths = [8, 16]\nbottleneck = true\n"}};
  for (const auto& [kind, tables] : kinds) {
    SCOPED_TRACE(kind);
    const std::string config = folder_.write(kind + ".toml",
                                             "[run]\nsteps = 4\nbatch_size = 6\nvirtual_ranks = 3\nseed = 2\n"
                                             "checkpoint_every = 2\n[optimizer]\nlr = 0.01\n" +
                                                 tables);
    const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
      std::vector<std::string> options = {"run",       config, "--run-dir", folder_ / (kind + name),
                                          "--threads", "1",    "--device",  "emulated"};
      options.insert(options.end(), more.begin(), more.end());
      const test::Ended ended = wait(spawn(options, kind + name), kind + name);
      EXPECT_EQ(ended.code, 0) << ended.err;
      return ledger(kind + name);
    };
    const std::string alone = run("", {"--numerics", "fast"});
    EXPECT_EQ(recorded(kind), 4);
    EXPECT_EQ(run("-three", {"--numerics", "fast", "--workers", "3", "--min-workers", "3"}), alone);
    EXPECT_EQ(run("-stages", {"--numerics", "fast", "--workers", "2", "--arrangement", "pp=2"}), alone);
    run("-stopped", {"--numerics", "fast", "--until", "2"});
    EXPECT_EQ(run("-stopped", {"--numerics", "fast", "--resume"}), alone);
    // Its rankings use logits, which are bfloat16 there.
    const test::Ended score = wait(spawn({"eval", folder_ / kind, "--device", "emulated"}, "eval"), "eval");
    EXPECT_EQ(score.code, 0) << score.err;
    run("-recomputed", {"--numerics", "fast", "--set", "run.recompute=true"});
    run("-portable", {});
    for (size_t step = 0; step < 4; ++step) {
      const LedgerLine fast = steps(kind).at(step), again = steps(kind + "-recomputed").at(step),
                       portable = steps(kind + "-portable").at(step);
      EXPECT_EQ(fast.gradient.hex(), again.gradient.hex());
      EXPECT_NE(fast.gradient.hex(), portable.gradient.hex()) << "no product was fast";
      EXPECT_NEAR(fast.loss, portable.loss, 0.02 * portable.loss);  // the runs differ by roundings of up to 0.4 %
    }
  }
}

TEST_F(FastJob, ACpuTakesNoPart) {
  const test::Ended ended = wait(start("cpu", {"--numerics", "fast", "--device", "cpu"}), "cpu");
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_NE(ended.err.find("run.numerics = \"fast\" needs a GPU with tensor cores, which cpu is not"),
            std::string::npos)
      << ended.err;

  const pid_t job = start_fast("gpu", "1000000", {"--set", "run.checkpoint_every=0"});
  reach("gpu", 2);
  const test::Ended joined = wait(spawn({"join", endpoint("gpu"), "--device", "cpu"}, "joined"), "joined");
  EXPECT_EQ(joined.code, 2) << joined.err;
  EXPECT_NE(joined.err.find("needs a GPU"), std::string::npos) << joined.err;
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "gpu", "stop"}, "ctl"), "ctl").code, 0);
  const test::Ended stopped = wait(job, "gpu");
  EXPECT_EQ(stopped.code, 0) << stopped.err;

  // A trained network can be evaluated on any device.
  const test::Ended score = wait(spawn({"eval", folder_ / "gpu", "--device", "cpu"}, "eval"), "eval");
  EXPECT_EQ(score.code, 0) << score.err;
}

// A run that one kind of GPU has begun does not continue on another, whichever worker comes first.
TEST_F(FastJob, ARunGoesOnOnItsKindAlone) {
  const test::Ended begun = wait(start_fast("run", "8", {"--until", "4"}), "run");
  ASSERT_EQ(begun.code, 0) << begun.err;
  const std::filesystem::path path = folder_ / "run" / "ledger.jsonl";
  std::vector<std::string> lines = test::lines_of(read_file(path));
  LedgerHeader header = LedgerHeader::parse(lines.at(0));
  EXPECT_EQ(header.kind, "emulated with stand-ins");
  const std::string ours = lines[0];
  const auto rewrite = [&](const std::string& first) {
    lines[0] = first;
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    replace_file(path, text);
  };
  header.kind = "a \"GPU\" with stand-ins";
  rewrite(header.text());
  const test::Ended other = wait(start_fast("run", "8", {"--resume"}), "run");
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_NE(other.err.find("it computes on emulated with stand-ins, the run on a \"GPU\" with stand-ins"),
            std::string::npos)
      << other.err;
  rewrite(ours);
  const test::Ended same = wait(start_fast("run", "8", {"--resume"}), "run");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(recorded("run"), 8);
}

}  // namespace
}  // namespace elinvar
#endif
