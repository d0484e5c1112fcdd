// An elastic job with its own data set, network and optimiser. Workers may come, go and die: the ledger of the run is
// byte for byte that of one undisturbed worker.
//
//   elastic_job run elastic_job.toml --workers 3    a coordinator and three workers: this program, started again
//   elastic_job join runs/elastic_job               one more worker
//   kill -9 <one of them>                           the others continue
//   elastic_job ctl runs/elastic_job status
#include <memory>

#include "elinvar/autograd/pointwise.h"
#include "elinvar/data/tensor_dataset.h"
#include "elinvar/models/kinds.h"
#include "elinvar/nn/linear.h"
#include "elinvar/nn/optimizer.h"
#include "elinvar/tensor/ops/pointwise.h"
#include "elinvar/tools/launch/elastic_main.h"

using namespace elinvar;

namespace {

// [data] kind = "chessboard": points of the unit square, each with the colour of its field.
std::unique_ptr<Dataset> open_chessboard(Settings& settings, Split split) {
  const int64_t size = settings.integer("size", 3000), fields = settings.integer("fields", 3, 2, 100);
  Tensor points = Tensor::empty({size, 2}), colours = Tensor::empty({size}, DType::i64);
  for (int64_t i = 0; i < size; ++i) {
    const Random4 random = philox(key_of(name_of(split)), static_cast<uint32_t>(i), 0, 0, 0);
    const float x = uniform01(random.v[0]), y = uniform01(random.v[1]);
    points.data<float>()[2 * i] = x;
    points.data<float>()[2 * i + 1] = y;
    const auto row = static_cast<int64_t>(y * static_cast<float>(fields));
    colours.data<int64_t>()[i] = (static_cast<int64_t>(x * static_cast<float>(fields)) + row) % 2;
  }
  return tensor_dataset({.inputs = points, .targets = colours, .classes = 2});
}

// [model] kind = "waves": sines of the input, added up.
struct Waves final : Network {
  Waves(Settings& settings, const InputInfo& input, uint64_t seed) {
    const int64_t waves = settings.integer("waves", 64);
    const double frequency = settings.real("frequency", 10, 0, 1000);
    const Scope scope(parameters, seed);
    in = Linear(scope / "in", input.sample.numel(), waves, {.weight = init::uniform(frequency)});
    out = Linear(scope / "out", waves, input.classes);
  }
  Var forward(const Tensor& x, Context&) const override { return out(sin(in(Var(x)))); }
  Linear in, out;
};

// [optimizer] kind = "heavy_ball": v = momentum v + g, p = p - lr v.
struct HeavyBall final : Optimizer {
  HeavyBall(Settings& settings, const Parameters& parameters) : momentum(settings.real("momentum", 0.9, 0, 1)) {
    for (const Parameter& p : parameters.list)
      velocity.emplace(p.name + ".velocity", Tensor::zeros(p.var.shape(), p.var.dtype(), p.var.value().device()));
  }
  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t, double scale) override {
    for (size_t i = 0; i < gradients.size(); ++i) {
      Tensor& v = velocity.at(parameters.list[i].name + ".velocity");
      scale_into(v, momentum);
      add_into(v, mul(gradients[i], scale));
      add_into(parameters.list[i].var.mutable_value(), mul(v, -lr));
    }
  }
  StateDict state() const override { return velocity; }
  double momentum;
  StateDict velocity;
};

}  // namespace

int main(int argc, char** argv) {
  register_dataset({"chessboard", open_chessboard});
  register_model({"waves", [](Settings& settings, const InputInfo& input, uint64_t seed) {
                    return std::make_unique<Waves>(settings, input, seed);
                  }});
  register_optimizer({"heavy_ball", [](Settings& settings, const Parameters& parameters) {
                        return std::make_unique<HeavyBall>(settings, parameters);
                      }});
  return elastic_main(argc, argv);
}
