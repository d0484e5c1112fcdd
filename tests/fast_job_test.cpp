// Jobs with run.numerics = "fast": the same bits for any number of workers of one kind of GPU, and no others.
#ifdef ELINVAR_EMULATION
#include <gtest/gtest.h>

#include "elastic/ledger.h"
#include "tensor/file.h"
#include "tests/tiny_job.h"

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

  // What was trained can be looked at anywhere.
  const test::Ended score = wait(spawn({"eval", folder_ / "gpu", "--device", "cpu"}, "eval"), "eval");
  EXPECT_EQ(score.code, 0) << score.err;
}

// What another kind of GPU has begun nobody goes on with, whoever comes first.
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
