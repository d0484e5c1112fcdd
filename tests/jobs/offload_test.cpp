// Jobs whose workers keep the optimizer's state in the host's memory or in files (--offload): it shows in no ledger, no
// digest and no checkpoint, whoever dies, and nothing is left of the files.
#include <gtest/gtest.h>

#include <filesystem>

#include "tensor/base/file.h"
#include "tests/jobs/divided_job.h"
#include "tests/jobs/tiny_job.h"
#include "tools/cli/program_beside.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using test::Ended;
using Words = std::vector<std::string>;

// With audits, and an optimizer whose updates go through its state twice.
class Offloaded : public test::TinyJob {
 protected:
  Offloaded() : TinyJob("audit_every = 20\n", "kind = \"lamb\"\nweight_decay = 0.1\nclip_norm = 0.5\n") {
    fs::create_directory(place_);
  }

  std::string in_file() const { return "file:" + place_.string(); }
  // Runs to the end, although workers are killed and the state is restored, sent and made anew.
  void expect_same(const std::string& name, const std::string& offload, const Words& more) const {
    Words words = {"--offload", offload,   "--workers",
                   "2",         "--chaos", "kill:worker=2,step=30;join:step=40;kill:step=90,all"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(run_through(name, words), "") << name;
    EXPECT_TRUE(paths_in(place_).empty()) << name;
  }

  const fs::path place_ = folder_ / "state";
};

TEST_F(Offloaded, StateInFilesShowsNowhere) {
  expect_same("at-once", in_file(), {});
  expect_same("sharded", in_file(), {"--arrangement", "zero=1"});
}

TEST_F(Offloaded, StateOfGpusInMemoryOfTheHostOrInFilesShowsNowhere) {
#ifdef ELINVAR_EMULATION
  expect_same("host", "host", {"--device", "emulated"});
  expect_same("sharded-host", "host", {"--device", "emulated", "--arrangement", "zero=1"});
  expect_same("sharded-file", in_file(), {"--device", "emulated", "--arrangement", "zero=1"});
#else
  GTEST_SKIP() << "the GPU is the emulated one (ELINVAR_EMULATION)";
#endif
}

// Inputs of blocks that run again go where the optimizer's state goes.
class OffloadedInputs : public test::TinyJob {
 protected:
  OffloadedInputs()
      : TinyJob("recompute = true\n", "kind = \"adamw\"\nweight_decay = 0.1\nclip_norm = 0.5\n", test::kTinyShards) {
    fs::create_directory(place_);
  }
  void expect_same(const std::string& arrangement, const std::string& offload, Words more = {}) const {
    more.insert(more.end(),
                {"--arrangement", arrangement, "--offload", offload, "--chaos", "kill:worker=2,step=30;join:step=40"});
    EXPECT_EQ(run_through(arrangement, more), "") << arrangement;
    EXPECT_TRUE(paths_in(place_).empty()) << arrangement;
  }

  const fs::path place_ = folder_ / "state";
};

TEST_F(OffloadedInputs, ShowNowhere) {
  for (const char* arrangement : {"dp=2", "dp=1,pp=2", "dp=2,zero=3"})
    expect_same(arrangement, "file:" + place_.string() + ",inputs");
#ifdef ELINVAR_EMULATION
  expect_same("dp=2,zero=1", "host,inputs", {"--device", "emulated"});
#endif
}

TEST_F(OffloadedInputs, AreKeptOnlyByBlocksThatRunAgain) {
  const Ended ended = wait(start("all", {"--set", "run.recompute=false", "--offload", "file,inputs"}), "all");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("--offload ..,inputs: only with run.recompute = true"), std::string::npos) << ended.err;
}

TEST_F(Offloaded, AWorkerMayChooseForItself) {
  const pid_t job = start("run", {"--min-workers", "2"});
  for (int i = 0; i < 2000 && !fs::exists(folder_ / "run" / "coordinator.json"); ++i) usleep(5000);
  const pid_t joined = spawn({"join", endpoint("run"), "--threads", "1", "--offload", in_file()}, "joined");
  const Ended ended = wait(job, "run"), other = wait(joined, "joined");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  size_t told = 0;
  for (const nlohmann::json& event : events("run", "environment")) told += event["environment"].contains("offload");
  EXPECT_EQ(told, 1u);
}

TEST_F(Offloaded, WhatCannotBeIsRefused) {
  const auto failed = [&](const std::string& name, const std::string& offload, const Words& before) {
    return wait(start(name, {"--device", "cpu", "--offload", offload}, before), name);
  };
  const Ended host = failed("host", "host", {});
  EXPECT_EQ(host.code, 2);
  EXPECT_NE(host.err.find("--offload host: this worker computes on the CPU"), std::string::npos) << host.err;
  const fs::path library = program_beside("libfailing_storage.so");
  if (!fs::exists(library)) GTEST_SKIP() << "a sanitizer has the place of " << library;
  const Ended full = failed("full", in_file(),
                            {"env", "LD_PRELOAD=" + library.string(), "ELINVAR_FAILING=call=reserve,error=28,from=3"});
  EXPECT_EQ(full.code, 3);
  EXPECT_NE(full.err.find("No space left on device; make room on that disk"), std::string::npos) << full.err;
  EXPECT_TRUE(paths_in(place_).empty());
}

}  // namespace
}  // namespace elinvar
