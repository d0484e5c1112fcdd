// Submission to a pool: accepted jobs and settings, and refusals.
#include "tools/pool/store/submission.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/jobs/small_job.h"
#include "tests/support/temporary_folder.h"
#include "tools/pool/daemon/settings.h"

namespace elinvar::pool {
namespace {

using elinvar::test::message_of;
using elinvar::test::TemporaryFolder;

class PoolSubmission : public testing::Test {
 protected:
  Submission submission() {
    return {.config = folder_.write("job.toml", elinvar::test::text_of({})),
            .overrides = overrides_,
            .name = {},
            .kinds = {}};
  }
  std::string refusal(const Submission& s) {
    return message_of<UsageError>([&] { checked(s, folder_ / "pool", 100); });
  }
  TemporaryFolder folder_;
  std::vector<std::string> overrides_;
};

TEST_F(PoolSubmission, HasWhatTheConfigurationSays) {
  const JobRecord job = checked(submission(), folder_ / "pool", 100);
  EXPECT_EQ(job.name, "job");
  EXPECT_EQ(job.batch, 12);
  EXPECT_EQ(job.steps, 600);
  EXPECT_EQ(job.max_workers, 5) << "as many as there are virtual ranks";
  EXPECT_EQ(job.fixed_workers, 5);
}

TEST_F(PoolSubmission, MakesPathsOfDataAbsolute) {
  overrides_ = {"data.kind=cifar10", "data.path=some/where", "data.cache_dir=kept", "data.index_dir=../indices"};
  Submission s = submission();
  folder_.write("job.toml",
                "[run]\nsteps = 3\nbatch_size = 4\n[model]\nkind = \"resnet20\"\n[data]\nkind = \"cifar10\"\n");
  const JobRecord job = checked(s, folder_ / "pool", 100);
  const std::filesystem::path here = std::filesystem::current_path();
  for (const std::string& wanted :
       {"data.path=\"" + (here / "some/where").string() + "\"", "data.cache_dir=\"" + (here / "kept").string() + "\"",
        "data.index_dir=\"" + (here.parent_path() / "indices").string() + "\""})
    EXPECT_NE(std::find(job.overrides.begin(), job.overrides.end(), wanted), job.overrides.end()) << wanted;
}

TEST_F(PoolSubmission, RefusesWhatMakesNoSense) {
  EXPECT_NE(refusal({.config = folder_ / "none.toml"}).find("there is no configuration"), std::string::npos);
  Submission s = submission();
  s.max_workers = 6;
  EXPECT_NE(refusal(s).find("set run.virtual_ranks to at least 6, or lower --max"), std::string::npos);
  s = submission();
  s.min_workers = 3;
  s.max_workers = 2;
  EXPECT_NE(refusal(s).find("expected 1 <= min"), std::string::npos);
  s = submission();
  for (const std::string& name : {std::string("a b; rm -rf"), std::string("a\0b", 3), std::string(101, 'a')}) {
    s.name = name;
    EXPECT_NE(refusal(s).find("is no name for a job"), std::string::npos) << name;
  }
  for (const auto& [option, workers] :
       {std::pair("--min", &Submission::min_workers), std::pair("--max", &Submission::max_workers),
        std::pair("--size", &Submission::fixed_workers)})
    for (const int wrong : {-3, 1025}) {
      s = submission();
      s.*workers = wrong;
      EXPECT_EQ(refusal(s), fmt::format("{} {}: a job has 1 to 1024 workers", option, wrong));
    }
  s = submission();
  s.kinds = {"NVIDIA A100"};
  EXPECT_EQ(refusal(s), "");
  for (const std::string& kind : {std::string(), std::string("a\nb"), std::string("\xff"), std::string(101, 'a')}) {
    s.kinds = {kind};
    EXPECT_NE(refusal(s).find("--kind"), std::string::npos) << kind;
  }
  overrides_ = {"run.stepz=3"};
  EXPECT_NE(refusal(submission()).find("stepz"), std::string::npos);
}

// Another job's files, however the path is written.
TEST_F(PoolSubmission, RefusesPathsInThePool) {
  std::filesystem::create_directories(folder_ / "pool" / "jobs" / "1");
  std::filesystem::create_directory_symlink(folder_ / "pool", folder_ / "link");
  for (const std::string path : {"pool/jobs/1/run", "elsewhere/../pool/jobs/1", "link/jobs/1", "pool"}) {
    overrides_ = {"data.path=" + folder_.path() + "/" + path};
    EXPECT_NE(refusal(submission()).find("lies in the pool's directory"), std::string::npos) << path;
  }
  overrides_ = {"data.path=" + folder_.path() + "/pools"};
  EXPECT_EQ(refusal(submission()), "");
  overrides_ = {"data.path=/" + std::string(3000, 'a')};
  EXPECT_EQ(refusal(submission()).find("data.path = \"/aaa"), 0u) << "no path of this system";
  overrides_ = {"data.path=\"a\\u0000b\""};
  EXPECT_EQ(refusal(submission()), "--set data.path: data.path must not have a character of the code 0");
}

TEST(PoolDuration, HasAUnit) {
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("1.5m"), 90);
  EXPECT_EQ(parse_duration("2h"), 7200);
  EXPECT_EQ(parse_duration("1d"), 86400);
  for (const char* wrong : {"", "h", "2 weeks", "-3m", "nan"}) EXPECT_THROW(parse_duration(wrong), UsageError) << wrong;
}

TEST(PoolSettings, NameSources) {
  const Settings s = parse_settings(R"(
[pool]
policy = "equal"
advertise = "head"
[here]
slots = 2
threads = 3
[lab]
source = "ssh"
hosts = ["a", "b"]
)",
                                    "pool.toml");
  EXPECT_EQ(s.pool.policy, "equal");
  ASSERT_EQ(s.sources.size(), 2u);
  EXPECT_EQ(s.sources[0].name, "here");
  EXPECT_EQ(s.sources[0].slots, 2);
  EXPECT_EQ(s.sources[1].hosts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse_settings("", "pool.toml").sources.size(), 1u) << "this host";
}

TEST(PoolSettings, ErrorsNameTheirPlace) {
  const auto refusal = [](const char* text) {
    return message_of<UsageError>([&] { parse_settings(text, "pool.toml"); });
  };
  EXPECT_NE(refusal("[pool]\npolicyy = \"equal\"\n").find("pool.toml:2"), std::string::npos);
  EXPECT_NE(refusal("[x]\nsource = \"cloud\"\n").find("cloud"), std::string::npos);
  const std::string pool = "[pool]\nadvertise = \"head\"\n", gpus = "]\ndevice = \"cuda\"\n";
  EXPECT_EQ(refusal((pool + "[a" + gpus + "[b" + gpus).c_str()),
            "pool.toml: [a] and [b] both have the GPUs of this host; one table is for all of them");
  const std::string lab = gpus + "source = \"ssh\"\nhosts = [\"x\"]\n";
  EXPECT_NE(refusal((pool + "[a" + lab + "[b" + lab).c_str()).find("the GPUs of x"), std::string::npos);
  EXPECT_EQ(refusal((pool + "[a" + gpus + "[b" + lab).c_str()), "");
  EXPECT_NE(refusal("[lab]\nsource = \"ssh\"\nhosts = [\"a\"]\n").find("advertise"), std::string::npos);
}

}  // namespace
}  // namespace elinvar::pool
