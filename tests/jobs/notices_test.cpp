// Notices about settings that are valid but rarely intended.
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

using test::Ended;
using test::TrainCommand;

int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(TrainCommand, WorkersThatHaveNothingToDoAreToldOf) {
  const auto said = [&](const std::string& workers, const std::string& vranks) {
    const Ended ended =
        run("text.toml", workers + "-" + vranks, {"--workers", workers, "--set", "run.virtual_ranks=" + vranks});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out + ended.err;
  };
  const std::string one = said("3", "2"), two = said("3", "1"), none = said("2", "2"), fewer = said("1", "2");
  EXPECT_EQ(
      count_of(one,
               "\n1 of 3 workers has nothing to do: each needs a virtual rank, and run.virtual_ranks is 2; another "
               "number changes the result, so it needs a new run\n"),
      1)
      << one;
  EXPECT_EQ(
      count_of(two, "\n2 of 3 workers have nothing to do: each needs a virtual rank, and run.virtual_ranks is 1;"), 1)
      << two;
  EXPECT_EQ(count_of(none, "nothing to do"), 0) << none;
  EXPECT_EQ(count_of(fewer, "nothing to do"), 0) << fewer;
}

// The configuration has 50 samples.
TEST_F(TrainCommand, ABatchOfMoreThanAllSamplesIsToldOf) {
  const auto with_batch = [&](const std::string& batch) {
    const Ended ended = run("images.toml", "batch" + batch, {"--steps", "3", "--set", "run.batch_size=" + batch});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended;
  };
  const Ended all = with_batch("50"), more = with_batch("51");
  EXPECT_EQ(all.err.find("is more than"), std::string::npos) << all.err;
  EXPECT_NE(
      more.err.find("run.batch_size = 51 is more than the 50 samples: each step takes all of them, and is an epoch\n"),
      std::string::npos)
      << more.err;

  // Before a run, train check tells the same.
  const auto checked = [&](const std::string& batch) {
    const Ended ended = train({"check", folder_ / "images.toml", "--set", "run.batch_size=" + batch});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_EQ(count_of(checked("50"), "is more than"), 0);
  EXPECT_EQ(count_of(checked("51"), "run.batch_size is more than the 50 samples: each step takes all of them\n"), 1);
}

}  // namespace
}  // namespace elinvar
