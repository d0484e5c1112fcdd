// Hostile things, by random seeds, done to real jobs (tools/torture).
//   ELINVAR_TORTURE        how many schedules, of the seeds from
//   ELINVAR_TORTURE_SEED   this one on,
//   ELINVAR_TORTURE_KIND   of this kind alone,
//   ELINVAR_TORTURE_KEEP   and where runs of those that fail are kept
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/torture_faults.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text ? text : otherwise;
}

using TortureJob = test::Torture;

TEST_F(TortureJob, WhateverIsDoneToItItEndsAsTheUndisturbedRunOrSaysWhyNot) {
  const int64_t count = std::stoll(from_environment("ELINVAR_TORTURE", std::to_string(kinds().size())));
  const uint64_t first = std::stoull(from_environment("ELINVAR_TORTURE_SEED", "0"));
  const std::string one = from_environment("ELINVAR_TORTURE_KIND", ""), keep_in = from_environment("ELINVAR_TORTURE_KEEP", "");
  const bool tells = std::getenv("ELINVAR_TORTURE") != nullptr;
  struct Tally {
    int64_t schedules = 0, failed = 0;
    double seconds = 0;
  };
  std::map<std::string, Tally> table;
  const auto began = Clock::now();
  for (int64_t n = 0; n < count; ++n) {
    const uint64_t seed = first + static_cast<uint64_t>(n);
    const std::string kind = !one.empty() ? one : kinds()[seed % kinds().size()];
    const auto start = Clock::now();
    const std::string wrong = torture(kind, seed);
    const std::chrono::duration<double> took = Clock::now() - start, all = Clock::now() - began;
    Tally& tally = table[kind];
    ++tally.schedules;
    tally.failed += !wrong.empty();
    tally.seconds += took.count();
    if (tells)
      fmt::print(stderr, "schedule {} of {}, {} {}: {:.1f} s{}; {:.0f} s left\n", n + 1, count, kind, seed, took.count(),
                 wrong.empty() ? "" : ", FAILED",
                 all.count() / static_cast<double>(n + 1) * static_cast<double>(count - n - 1));
    const std::string name = fmt::format("{}-{}", kind, seed);
    if (!wrong.empty()) {
      std::string kept;
      if (!keep_in.empty()) {
        kept = (fs::path(keep_in) / name).string();
        keep(name, kept);
        kept = "\nkept in " + kept;
      }
      ADD_FAILURE() << wrong << "\n" << story() << "\nrepeat it with: tools/torture 1 --kind " << kind << " --seed " << seed << kept;
    }
    forget(name);
  }
  if (!tells) return;
  fmt::print(stderr, "\n{:<14}{:>10}{:>8}{:>10}\n", "kind", "schedules", "failed", "seconds");
  for (const auto& [kind, tally] : table)
    fmt::print(stderr, "{:<14}{:>10}{:>8}{:>10.0f}\n", kind, tally.schedules, tally.failed, tally.seconds);
  fmt::print(stderr, "{} faults in all\n", faults());
}

}  // namespace
}  // namespace elinvar
