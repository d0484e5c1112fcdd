#include "tools/bench/models.h"

#include <algorithm>
#include <memory>

#include "tensor/base/check.h"
#include "tools/bench/kernel_times.h"
#include "tools/bench/memory.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

// Watches further steps. The last row is of all kernels, whose times overlap where there are several queues.
void add_kernels(const std::string& row, Trainer& trainer, int steps, int most, Report& report) {
  KernelWatch watch;
  for (int i = 0; i < steps; ++i) trainer.step();
  trainer.settle();  // a step ends before its kernels, which would count as 0 s
  KernelTime all;
  for (const KernelTime& kernel : watch.take()) {
    all.launches += kernel.launches;
    all.seconds += kernel.seconds;
    if (most-- > 0) report.add_kernel(row, kernel.name, kernel.seconds / steps, kernel.launches / steps);
  }
  report.add_kernel(row, "all kernels", all.seconds / steps, all.launches / steps);
}

}  // namespace

void run_model(const std::string& name, int64_t batch, const TrainerOptions& options, int warm_up, int repeat,
               int kernels, Report& report) {
  const ModelCase& model = model_case(name);
  MemoryWatch memory(options.device);
  Trainer trainer(model, batch == 0 ? model.batch : batch, options);
  if (options.graphs) warm_up = std::max(warm_up, 2);  // graphs are recorded in the second step
  int done = 0;
  const double seconds = median_seconds(warm_up, repeat, [&] {
    trainer.step();
    if (++done == warm_up) memory.steady();
  });
  const std::string row = options.graphs ? name + ", graphs" : name;
  report.add(row, seconds, trainer.gflop(), 0.0, trainer.items(), trainer.unit(), memory.figures());
  if (kernels > 0) add_kernels(row, trainer, repeat, kernels, report);
}

void run_in_shards(const std::string& name, int64_t batch, const TrainerOptions& options,
                   const std::vector<int>& shards, int warm_up, int repeat, Report& report) {
  const ModelCase& model = model_case(name);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const int count : shards) {
    TrainerOptions own = options;
    own.shards = count;
    trainers.push_back(std::make_unique<Trainer>(model, batch == 0 ? model.batch : batch, own));
  }
  std::vector<std::vector<double>> times(shards.size()), longer(shards.size());
  for (int round = 0; round < warm_up + repeat; ++round) {
    std::vector<double> seconds;
    for (const auto& trainer : trainers) seconds.push_back(seconds_of([&] { trainer->step(); }));
    for (size_t i = 0; round >= warm_up && i < seconds.size(); ++i) {
      times[i].push_back(seconds[i]);
      longer[i].push_back(100 * (seconds[i] / seconds[0] - 1));
    }
  }
  for (size_t i = 0; i < shards.size(); ++i)
    report.add(fmt::format("{}, virtual shards {}", name, shards[i]), median(times[i]), trainers[i]->gflop(), 0.0,
               trainers[i]->items(), trainers[i]->unit(), {{"longer_percent", rounded(median(longer[i]))}});
}

}  // namespace elinvar::bench
