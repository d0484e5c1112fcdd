#include "tools/bench/arrangements.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/bench/arrangement_job.h"
#include "tools/bench/predictions.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

void measure_zero(const std::string& network, int workers, int rounds, Report& report) {
  std::vector<ArrangementJob> all;
  for (int zero = 0; zero <= kMostZero; ++zero)
    for (const int copies : {1, 2})
      if (zero > 0 || copies == 2)
        all.push_back({.name = zero == 0 ? "zero=0" : fmt::format("zero={}, copies {}", zero, copies),
                       .arrangement = {.zero = zero, .copies = copies},
                       .workers = workers,
                       .sizes = usual_steps(network)});
  int64_t parameters = 0;
  for (int round = 0; round < rounds; ++round)
    for (ArrangementJob& each : all) parameters = each.measure(network);

  const double megabytes = 4e-6 * static_cast<double>(parameters);  // of the parameters
  const double slots = network == "gpt2" ? 2 : 1;                   // AdamW, or SGD with momentum
  const auto n = static_cast<double>(workers);
  const auto state = [&](const Arrangement& a) {
    const double share = a.zero == 0 ? 1 : std::min(1.0, a.copies / n);
    return megabytes * (1 + slots * share);
  };
  const double peak_without = median(all[0].peaks), without = median(all[0].steps);
  for (const ArrangementJob& each : all) {
    // Subtree roots go to each bucket's owner, sums to its other keepers, parameters to those that do not keep it.
    const double copies = each.arrangement.zero == 0 ? n : std::min<double>(each.arrangement.copies, n);
    report.add(fmt::format("{}, {} workers, {}", network, workers, each.name), median(each.steps), 0, 0, 0, "",
               {{"slower_percent", rounded(100 * (median(each.steps) / without - 1))},
                {"sent_mb", rounded(median(each.megabytes))},
                {"predicted_sent_mb", rounded(megabytes * 2 * (n - 1))},
                {"of_which_sums_mb", rounded(megabytes * (copies - 1))},
                {"peak_mb", rounded(median(each.peaks))},
                {"less_mb", rounded(peak_without - median(each.peaks))},
                {"state_mb", rounded(state(each.arrangement))},
                {"predicted_less_mb", rounded(state(all[0].arrangement) - state(each.arrangement))}});
  }
}

// Compares workers of one thread that compute each gradient together with one worker of as many threads, and with as
// many that compute gradients of their own. A gradient has 1024 tokens.
void measure_tensor_parallelism(int workers, int rounds, Report& report) {
  const std::vector<std::string> shards = {"--set", fmt::format("model.virtual_shards={}", workers)};
  const Sizes together{.batch = 4, .vranks = 1, .width = 256};
  const Sizes apart{.batch = 4 * workers, .vranks = workers, .width = 256};
  std::vector<ArrangementJob> all = {
      {.name = fmt::format("one worker of {} threads", workers), .threads = workers, .sizes = together, .more = shards},
      {.name = fmt::format("tp={}", workers),
       .arrangement = {.tp = workers},
       .workers = workers,
       .sizes = together,
       .more = shards},
      {.name = fmt::format("tp={}, zero=1, one copy", workers),
       .arrangement = {.zero = 1, .copies = 1, .tp = workers},
       .workers = workers,
       .sizes = together,
       .more = shards},
      {.name = fmt::format("dp={}, as many gradients", workers), .workers = workers, .sizes = apart, .more = shards}};
  for (int round = 0; round < rounds; ++round)
    for (ArrangementJob& each : all) each.measure("gpt2");
  const double gradient = median(all[0].steps);
  for (const ArrangementJob& each : all)
    report.add(fmt::format("gpt2, {} virtual shards, {}", workers, each.name), median(each.steps), 0, 0, 0, "",
               {{"slower_percent", rounded(100 * (median(each.steps) / each.sizes.vranks / gradient - 1))},
                {"sent_mb", rounded(median(each.megabytes))},
                {"peak_mb", rounded(median(each.peaks))}});
}

// Compares a pipeline of workers of one thread with one of them alone. The ideal speed-up for m gradients and p stages
// is p m / (m + p - 1): at the beginning and the end of a step stages have nothing to do.
void measure_pipeline(const std::string& network, int workers, int rounds, Report& report) {
  constexpr int kGradients = 8;
  Sizes sizes = usual_steps(network);
  sizes.batch = sizes.batch / sizes.vranks * kGradients;
  sizes.vranks = kGradients;
  std::vector<ArrangementJob> all = {
      {.name = "one worker", .sizes = sizes},
      {.name = fmt::format("pp={}", workers), .arrangement = {.pp = workers}, .workers = workers, .sizes = sizes}};
  for (int round = 0; round < rounds; ++round)
    for (ArrangementJob& each : all) each.measure(network);
  const double alone = median(all[0].steps),
               ideal = static_cast<double>(workers) * kGradients / (kGradients + workers - 1);
  for (const ArrangementJob& each : all)
    report.add(fmt::format("{}, {} gradients, {}", network, kGradients, each.name), median(each.steps), 0, 0, 0, "",
               {{"faster", rounded(alone / median(each.steps))},
                {"of_ideal_percent", rounded(each.workers == 1 ? 100 : 100 * alone / median(each.steps) / ideal)},
                {"sent_mb", rounded(median(each.megabytes))},
                {"peak_mb", rounded(median(each.peaks))}});
}

}  // namespace

std::vector<std::string> arrangement_sections() { return {"zero", "pipeline", "tensor", "predicted"}; }

void run_arrangements(const std::string& section, const std::string& network, int workers, int rounds, Report& report) {
  if (section == "zero") measure_zero(network, workers, rounds, report);
  if (section == "pipeline") measure_pipeline(network, workers, rounds, report);
  if (section == "tensor" && network == "gpt2") measure_tensor_parallelism(workers, rounds, report);
  if (section == "predicted") compare_predictions(network, workers, rounds, report);
}

}  // namespace elinvar::bench
