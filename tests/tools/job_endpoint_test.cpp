// Where a job is, and whether it is over, as its run directory says.
#include "tools/training/job_endpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/run/term.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

using Json = nlohmann::json;

TEST(JobEndpoint, IsOfTheRunUntilItIsOver) {
  const TemporaryFolder folder;
  const std::string run = folder.path();
  const auto refusal = [&] { return message_of<UsageError>([&] { (void)job_endpoint(run); }); };
  EXPECT_NE(refusal().find("it has no coordinator.json"), std::string::npos) << refusal();
  const HeldTerm first(run, {.number = 1, .run = 1, .endpoint = "tcp://127.0.0.1:5001"});
  folder.write("coordinator.json", R"({"endpoint": "tcp://127.0.0.1:5001"})");
  EXPECT_EQ(result_of(run), std::nullopt);
  EXPECT_EQ(job_endpoint(run), "tcp://127.0.0.1:5001");

  folder.write("result.json", R"({"status": "interrupted", "step": 3, "steps": 9, "tenure": 1})");
  ASSERT_TRUE(result_of(run));
  EXPECT_EQ(result_of(run)->at("step"), 3);
  EXPECT_NE(message_of<Failure>([&] {
              (void)job_endpoint(run);
            }).find("the run in " + run + " is over: interrupted at step 3 of 9"),
            std::string::npos);

  // It is resumed; the result of the part before stays for a while.
  const HeldTerm second(run, {.number = 2, .run = 1, .endpoint = "tcp://127.0.0.1:5002"});
  folder.write("coordinator.json", R"({"endpoint": "tcp://127.0.0.1:5002"})");
  EXPECT_EQ(result_of(run), std::nullopt);
  EXPECT_EQ(job_endpoint(run), "tcp://127.0.0.1:5002");
  folder.write("result.json", R"({"status": "finished", "step": 9, "steps": 9, "tenure": 2})");
  ASSERT_TRUE(result_of(run));
  EXPECT_EQ(result_of(run)->at("status"), "finished");
}

// Results of earlier versions of the program do not tell their term; other files tell nothing.
TEST(JobEndpoint, TakesAResultWithoutATermForTheNewest) {
  const TemporaryFolder folder;
  const HeldTerm held(folder.path(), {.number = 2, .run = 1, .endpoint = "tcp://127.0.0.1:5002"});
  folder.write("result.json", R"({"status": "finished", "step": 9, "steps": 9})");
  ASSERT_TRUE(result_of(folder.path()));
  EXPECT_EQ(result_of(folder.path())->at("step"), 9);
  folder.write("result.json", "[]");
  EXPECT_EQ(result_of(folder.path()), std::nullopt);
}

TEST(JobEndpoint, AProcessListensWhereTheJobReachesIt) {
  EXPECT_EQ(listen_towards("tcp://127.0.0.1:5000"), "tcp://127.0.0.1:0");
  EXPECT_EQ(listen_towards("ipc:///run/job"), "tcp://127.0.0.1:0");
  EXPECT_NE(message_of<UsageError>([] { (void)listen_towards("127.0.0.1:5000"); }), "");
}

}  // namespace
}  // namespace elinvar::test
