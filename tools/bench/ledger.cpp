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
  std::vector<double> steps, batches, gradients, reductions, states, lines;
  for (int i = 0; i < warm_up + repeat; ++i) {
    MicroBatchResult result;
    TensorsDigest gradient, reduced;
    StateSum state;
    const double gradient_seconds = seconds_of([&] { result = trainer.gradients(); });
    const double batch = seconds_of([&] { (void)digest(trainer.batch()); });
    const double of_gradient = seconds_of([&] { gradient = digest_in_order(result.gradients); });
    const double update = seconds_of([&] { trainer.update(result); });
    const double of_reduced = seconds_of([&] { reduced = digest_in_order(result.gradients); });
    const double of_state = seconds_of([&] { state = state_sum(digests_of(trainer.state())); });
    const double line = seconds_of([&] {
      LedgerLine entry;
      entry.leaves = {{0, gradient.digest}};
      entry.gradient = reduced.digest;
      entry.state = state.digest;
      (void)entry.text();
      (void)DigestLine{.step = i, .gradient = reduced.tensors, .leaves = {{0, gradient.tensors}}, .state = state.parts}
          .text();
    });
    if (i < warm_up) continue;
    steps.push_back(gradient_seconds + update);
    batches.push_back(batch);
    gradients.push_back(of_gradient);
    reductions.push_back(of_reduced);
    states.push_back(of_state);
    lines.push_back(line);
  }
  const double step = median(steps), every = static_cast<double>(RunConfig().state_digest_every);
  const auto percent = [&](double seconds) { return std::round(1e5 * seconds / step) / 1e3; };
  const double batch = median(batches), gradient = median(gradients), reduced = median(reductions),
               state = median(states), line = median(lines);
  report.add(name, step, trainer.gflop(), 0.0, trainer.items(), trainer.unit(),
             {{"batch_percent", percent(batch)},
              {"leaf_percent", percent(gradient)},
              {"reduced_percent", percent(reduced)},
              {"state_percent", percent(state)},
              {"lines_percent", percent(line)},
              {"ledger_percent", percent(batch + reduced + line + state / every)}});
}

}  // namespace elinvar::bench
