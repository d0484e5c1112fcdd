#include "tools/bench/ledger.h"

#include <cmath>

#include "elastic/checkpoint/state_parts.h"
#include "elastic/ledger/digest_file.h"
#include "elastic/ledger/ledger.h"
#include "tools/bench/models.h"
#include "tools/peak/timing.h"
#include "tools/config/config.h"

namespace elinvar::bench {
void run_ledger(const std::string& name, int warm_up, int repeat, Report& report) {
  const ModelCase& model = model_case(name);
  Trainer trainer(model, model.batch);
  std::vector<double> steps, batches, leaves, reductions, states, lines;
  for (int i = 0; i < warm_up + repeat; ++i) {
    MicroBatchResult result;
    TensorsDigest leaf, reduced;
    StateSum state;
    const double leaf_seconds = seconds_of([&] { result = trainer.gradients(); });
    const double batch = seconds_of([&] { (void)digest(trainer.batch()); });
    const double of_leaf = seconds_of([&] { leaf = digest_in_order(result.gradients); });
    const double update = seconds_of([&] { trainer.update(result); });
    const double of_reduced = seconds_of([&] { reduced = digest_in_order(result.gradients); });
    const double of_state = seconds_of([&] { state = state_sum(digests_of(trainer.state())); });
    const double line = seconds_of([&] {
      LedgerLine told;
      told.leaves = {{0, leaf.digest}};
      told.gradient = reduced.digest;
      told.state = state.digest;
      (void)told.text();
      (void)DigestLine{.step = i, .gradient = reduced.tensors, .leaves = {{0, leaf.tensors}}, .state = state.parts}
          .text();
    });
    if (i < warm_up) continue;
    steps.push_back(leaf_seconds + update);
    batches.push_back(batch);
    leaves.push_back(of_leaf);
    reductions.push_back(of_reduced);
    states.push_back(of_state);
    lines.push_back(line);
  }
  const double step = median(steps), every = static_cast<double>(RunConfig().state_digest_every);
  const auto percent = [&](double seconds) { return std::round(1e5 * seconds / step) / 1e3; };
  const double batch = median(batches), leaf = median(leaves), reduced = median(reductions), state = median(states),
               line = median(lines);
  report.add(name, step, trainer.gflop(), 0.0, trainer.items(), trainer.unit(),
             {{"batch_percent", percent(batch)},
              {"leaf_percent", percent(leaf)},
              {"reduced_percent", percent(reduced)},
              {"state_percent", percent(state)},
              {"lines_percent", percent(line)},
              {"ledger_percent", percent(batch + reduced + line + state / every)}});
}

}  // namespace elinvar::bench
