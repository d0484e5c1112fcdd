// Attacks on real jobs, by random seeds (tools/torture).
//   ELINVAR_TORTURE        the number of schedules
//   ELINVAR_TORTURE_SEED   the first seed
//   ELINVAR_TORTURE_KIND   the only kind; "list" prints the kinds
//   ELINVAR_TORTURE_KEEP   the folder in which failed runs are kept
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>

#include "tests/torture/faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text ? text : otherwise;
}

class TortureJob : public test::Torture {
 protected:
  // Carries out the schedule of this kind and seed. Fails the test and keeps files if something is wrong afterwards.
  bool passes(const std::string& kind, uint64_t seed) {
    const std::string wrong = torture(kind, seed), name = fmt::format("{}-{}", kind, seed);
    const std::string folder = from_environment("ELINVAR_TORTURE_KEEP", "");
    if (!wrong.empty()) {
      const std::string kept = folder.empty() ? "" : (fs::path(folder) / name).string();
      if (!kept.empty()) keep(name, kept);
      ADD_FAILURE() << wrong << "\n"
                    << story() << "\nrepeat it with: tools/torture 1 --kind " << kind << " --seed " << seed
                    << (kept.empty() ? "" : "\nkept in ") << kept;
    }
    if (from_environment("ELINVAR_TORTURE", "") == "1") fmt::print(stderr, "{}\n", story());
    take_disk_away();
    forget(name);
    return wrong.empty();
  }
};

// The system also sends a signal, which would end the coordinator and each that takes over.
TEST_F(TortureJob, AFileThatMayNotGrowIsAnError) {
  const test::Launch launch{.options = {"--workers", "2"}, .limits = {{RLIMIT_FSIZE, 20000}}};
  EXPECT_EQ(live("run", launch, {}, {}), "");
  EXPECT_NE(end().find("code 3, 'train: cannot write "), std::string::npos) << end();
  EXPECT_NE(end().find("File too large"), std::string::npos) << end();
  EXPECT_EQ(goes_on("run", launch.options, {}), "");
}

TEST_F(TortureJob, FilesThatGoAtTheLastMomentAreThereAtTheEnd) {
  for (const char* file : {"ledger.jsonl", "digests.jsonl"}) {
    const test::Deed goes{.step = kSteps - 20, .act = [this, file] { std::filesystem::remove(run("run") / file); }};
    EXPECT_EQ(live("run", {.options = {"--workers", "2"}}, {goes}, {}), "") << file;
    forget("run");
  }
}

TEST_F(TortureJob, EndsAsTheUndisturbedRunOrSaysWhyNot) {
  const std::string one = from_environment("ELINVAR_TORTURE_KIND", "");
  if (one == "list") {
    for (const std::string& kind : kinds()) fmt::print("{}\n", kind);
    return;
  }
  if (!std::getenv("ELINVAR_TORTURE")) {
    for (const std::string& kind : kinds()) passes(kind, kind == "directories" ? 2 : 1);
    return;
  }
  struct Tally {
    uint64_t schedules = 0, failed = 0;
    double seconds = 0;
  };
  std::map<std::string, Tally> table;
  const uint64_t count = std::stoull(from_environment("ELINVAR_TORTURE", "")),
                 first = std::stoull(from_environment("ELINVAR_TORTURE_SEED", "0"));
  const auto began = Clock::now();
  for (uint64_t n = 0; n < count; ++n) {
    const uint64_t seed = first + n;
    const std::string kind = one.empty() ? kinds()[seed % kinds().size()] : one;
    const auto start = Clock::now();
    const bool passed = passes(kind, seed);
    const Seconds took = Clock::now() - start, all = Clock::now() - began;
    Tally& tally = table[kind];
    ++tally.schedules;
    tally.failed += !passed;
    tally.seconds += took.count();
    fmt::print(stderr, "schedule {} of {}, {} {}: {:.1f} s{}; {:.0f} s left\n", n + 1, count, kind, seed, took.count(),
               passed ? "" : ", FAILED", all.count() / static_cast<double>(n + 1) * static_cast<double>(count - n - 1));
  }
  fmt::print(stderr, "\n{:<14}{:>10}{:>8}{:>10}\n", "kind", "schedules", "failed", "seconds");
  for (const auto& [kind, tally] : table)
    fmt::print(stderr, "{:<14}{:>10}{:>8}{:>10.0f}\n", kind, tally.schedules, tally.failed, tally.seconds);
  fmt::print(stderr, "{} faults in all\n", faults());
}

}  // namespace
}  // namespace elinvar
