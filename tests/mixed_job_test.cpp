// One job whose workers differ in all that must not matter: instruction sets, threads, transport, number.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tensor/isa.h"
#include "tests/tiny_job.h"

namespace elinvar {
namespace {

using MixedJob = test::TinyJob;

TEST_F(MixedJob, AnyWorkersOfAnyKindGiveTheSameLedger) {
  const std::vector<Isa> isas = available_isas();
  for (const std::string scheme : {"tcp", "ipc"}) {
    for (const int workers : {1, 2, 3, 4, 5, 7, 8}) {
      const std::string name = scheme + std::to_string(workers);
      const auto kind = [&](int i) -> std::vector<std::string> {
        const std::string listen =
            scheme == "tcp" ? "tcp://127.0.0.1:0" : "ipc://" + (folder_ / (name + std::to_string(i))).string();
        const Isa isa = isas[static_cast<size_t>(i + workers) % isas.size()];
        return {"--isa", name_of(isa), "--threads", std::to_string(1 + i % 3), "--listen", listen};
      };
      std::vector<std::string> options = {"--workers", "1", "--min-workers", std::to_string(workers)};
      const std::vector<std::string> first = kind(0);
      options.insert(options.end(), first.begin(), first.end());
      const pid_t job = start(name, options);
      for (int i = 0; i < 1000 && !std::filesystem::exists(folder_ / name / "coordinator.json"); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      std::vector<pid_t> joined;
      for (int i = 1; i < workers; ++i) {
        std::vector<std::string> arguments = kind(i);
        arguments.insert(arguments.begin(), {"join", endpoint(name)});
        joined.push_back(spawn(arguments, name + std::to_string(i)));
      }
      const test::Ended ended = wait(job, name);
      EXPECT_EQ(ended.code, 0) << ended.err;
      EXPECT_EQ(ledger(name), undisturbed()) << name;
      for (int i = 1; i < workers; ++i) {
        const std::string which = name + std::to_string(i);
        const test::Ended worker = wait(joined[static_cast<size_t>(i - 1)], which);
        EXPECT_EQ(worker.code, 0) << worker.err;
      }
      const auto generations = events(name, "members");
      ASSERT_FALSE(generations.empty());
      EXPECT_EQ(generations[0].at("members").size(), static_cast<size_t>(workers)) << "all were there from the start";
    }
  }
}

}  // namespace
}  // namespace elinvar
