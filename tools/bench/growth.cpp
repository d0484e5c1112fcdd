#include "tools/bench/growth.h"

#include <chrono>
#include <cmath>
#include <functional>

#include "tensor/reduction_tree.h"
#include "tensor/base/check.h"
#include "tools/bench/memory.h"
#include "tools/bench/models.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

struct Growth {
  std::string name;
  std::vector<int64_t> sizes;
  std::function<ModelCase(int64_t size)> model;
};

const std::vector<Growth>& growths() {
  static const std::vector<Growth> all{
      {"batch",
       {16, 32, 64, 128, 256},
       [](int64_t n) {
         ModelCase c = model_case("resnet20");
         c.batch = n;
         return c;
       }},
      {"width", {128, 256, 512, 1024}, [](int64_t n) { return gpt_case("gpt", 4, n / 64, n, 128, 256, 8); }},
      {"depth", {2, 4, 8, 16}, [](int64_t n) { return gpt_case("gpt", n, 6, 384, 128, 256, 8); }},
      {"length", {64, 128, 256, 512, 1024}, [](int64_t n) { return gpt_case("gpt", 4, 6, 384, n, 256, 2048 / n); }}};
  return all;
}

// Computes `count` virtual ranks of a case and reduces their gradients like a worker. The cost is the time of the
// additions relative to that of the gradients, measured in the same steps.
void run_ranks(const ModelCase& model, int count, int warm_up, int repeat, Report& report) {
  MemoryWatch memory;
  Trainer trainer(model, model.batch);
  const auto now = std::chrono::steady_clock::now;
  double gradients = 0.0, additions = 0.0;
  int done = 0;
  const double seconds = median_seconds(warm_up, repeat, [&] {
    TreeReducer reducer(count);
    MicroBatchResult last;
    for (int rank = 0; rank < count; ++rank) {
      const auto start = now();
      last = trainer.gradients();
      const auto computed = now();
      reducer.add(rank, std::exchange(last.gradients, {}));
      if (done < warm_up) continue;
      gradients += std::chrono::duration<double>(computed - start).count();
      additions += std::chrono::duration<double>(now() - computed).count();
    }
    last.gradients = reducer.take_root();
    trainer.update(last);
    if (++done == warm_up) memory.steady();
  });
  nlohmann::ordered_json figures = memory.figures();
  figures["adding_percent"] = std::round(1e4 * additions / gradients) / 100.0;
  report.add(fmt::format("{} x {}", model.name, count), seconds, count * trainer.gflop(), 0.0, count * trainer.items(),
             trainer.unit(), figures);
}

}  // namespace

std::vector<std::string> growth_names() {
  std::vector<std::string> names;
  for (const Growth& g : growths()) names.push_back(g.name);
  names.emplace_back("ranks");
  return names;
}

void run_growth(const std::string& name, int warm_up, int repeat, Report& report) {
  if (name == "ranks") {
    for (const char* model : {"resnet50", "gpt2"})
      for (const int count : {1, 8}) run_ranks(model_case(model), count, warm_up, repeat, report);
    return;
  }
  for (const Growth& g : growths()) {
    if (g.name != name) continue;
    for (const int64_t size : g.sizes) {
      const ModelCase model = g.model(size);
      MemoryWatch memory;
      Trainer trainer(model, model.batch);
      int done = 0;
      const double seconds = median_seconds(warm_up, repeat, [&] {
        trainer.step();
        if (++done == warm_up) memory.steady();
      });
      report.add(fmt::format("{} {} = {}", model.name, name, size), seconds, trainer.gflop(), 0.0, trainer.items(),
                 trainer.unit(), memory.figures());
    }
    return;
  }
  throw UsageError(fmt::format("bench growth: unknown '{}'; there are {}", name, fmt::join(growth_names(), ", ")));
}

}  // namespace elinvar::bench
