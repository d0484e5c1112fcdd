// A custom network on custom data, in one process: to which of two half moons does a point belong?
//
// A network consists of parameters and a forward pass. micro_batch_gradient() computes the gradients of one batch, and
// the optimiser updates the parameters with them. Everything random is a function of a seed and of where it is used, so
// every run prints the same.
#include <cmath>
#include <cstdio>
#include <memory>

#include "elinvar/autograd/pointwise.h"
#include "elinvar/data/loader.h"
#include "elinvar/data/tensor_dataset.h"
#include "elinvar/nn/micro_batch.h"
#include "elinvar/nn/linear.h"
#include "elinvar/nn/optimizer.h"

using namespace elinvar;

namespace {

// Returns points (N, 2) on two interlocking half circles, with a little noise.
std::shared_ptr<const Dataset> half_moons(int64_t count, uint64_t seed) {
  Tensor points = Tensor::empty({count, 2}), moons = Tensor::empty({count}, DType::i64);
  for (int64_t i = 0; i < count; ++i) {
    const Random4 random = philox(seed, static_cast<uint32_t>(i), 0, 0, 0);
    const float angle = 3.14159265f * uniform01(random.v[0]);
    const int64_t moon = i % 2;
    const float side = moon == 0 ? 1.0f : -1.0f;
    points.data<float>()[2 * i] = side * (std::cos(angle) - 0.5f) + 0.2f * (uniform01(random.v[1]) - 0.5f);
    points.data<float>()[2 * i + 1] = side * (std::sin(angle) - 0.25f) + 0.2f * (uniform01(random.v[2]) - 0.5f);
    moons.data<int64_t>()[i] = moon;
  }
  return tensor_dataset({.inputs = points, .targets = moons, .classes = 2});
}

class MoonNetwork final : public Network {
 public:
  explicit MoonNetwork(uint64_t seed) {
    const Scope scope(parameters, seed);
    first_ = Linear(scope / "first", 2, 16);
    second_ = Linear(scope / "second", 16, 2);
  }
  // Points (N, 2) -> logits (N, 2).
  Var forward(const Tensor& points, Context&) const override { return second_(tanh(first_(Var(points)))); }

 private:
  Linear first_, second_;
};

}  // namespace

int main() {
  constexpr uint64_t kSeed = 1;
  constexpr int64_t kSteps = 300;
  const std::shared_ptr<const Dataset> data = half_moons(1000, kSeed);
  Loader loader(data, {.seed = kSeed, .global_batch = 50});
  MoonNetwork network(kSeed);
  const std::unique_ptr<Optimizer> optimizer = make_optimizer({.kind = "adam"}, network.parameters);

  for (int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = loader.batch(step, 0);
    const Rng rng{.seed = kSeed, .step = static_cast<uint32_t>(step)};
    const MicroBatchResult result = micro_batch_gradient(network, batch.input, batch.target, {}, rng);
    // Gradients are those of the summed loss; the optimiser divides them by the number of samples.
    optimizer->step(network.parameters, result.gradients, 0.01, step, 1.0 / static_cast<double>(result.count));
    if (step % 100 == 0)
      std::printf("step %3ld  loss %.4f\n", step, result.loss_sum / static_cast<double>(result.count));
  }

  Loader test(half_moons(500, kSeed + 1), {.global_batch = 500, .shuffle = false});
  const Batch all = test.batch(0, 0);
  const BatchScore score = evaluate(network, all.input, all.target);
  std::printf("%ld of %ld new points are right\n", score.correct, score.count);
}
