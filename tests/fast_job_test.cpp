// Jobs with run.numerics = "fast": the same bits for any number of workers of one kind of GPU, and no others.
#ifdef ELINVAR_EMULATION
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace elinvar
#endif
