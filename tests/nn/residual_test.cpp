// A residual stream has the same bits whether its sums are made by the following norms or at once.
#include "nn/residual.h"

#include <gtest/gtest.h>

#include <map>

#include "autograd/reduce.h"
#include "nn/norm.h"
#include "nn/recompute.h"
#include "tensor/isa.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/pointwise.h"
#include "tensor/trace.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar::test {
namespace {

void expect_same(const Tensor& a, const Tensor& b, const char* what) {
  EXPECT_TRUE(same_bits(a.to(Device{}), b.to(Device{}))) << what;
}

// Compares x + addend made by add_norm with two separate ops.
void compare_ops(Device device, RowNorm kind, const Tensors& here) {
  Tensors t;
  for (const Tensor& each : here) t.push_back(each.to(device));
  const bool layer = kind == RowNorm::layer;
  const Tensor sum = add(t[0], t[1]), beta = layer ? t[3] : Tensor();
  const RowNormResult norm = layer ? layer_norm(sum, t[2], beta, 1e-5) : rms_norm(sum, t[2], 1e-5);
  const AddNormResult made = add_norm(kind, t[0], t[1], t[2], beta, 1e-5, sum.dtype());
  expect_same(made.sum, sum, "sum");
  expect_same(made.norm.y, norm.y, "y");
  expect_same(made.norm.r, norm.r, "r");
  EXPECT_EQ(made.norm.mean.defined(), layer);
  if (layer) expect_same(made.norm.mean, norm.mean, "mean");
}

TEST(Residual, OneOpHasTheBitsOfTwo) {
  for (const int64_t cols : {1, 17, 64, 771, 5000})
    for (const Values values : {Values::ordinary, Values::adversarial}) {
      const Shape shape{70, cols};
      const Tensors inputs = make_inputs({{shape}, {shape}, {{cols}}, {{cols}}}, "stream", values);
      for (const RowNorm kind : {RowNorm::layer, RowNorm::rms}) {
        SCOPED_TRACE(cols);
        for (const Isa isa : available_isas()) {
          set_isa(isa);
          SCOPED_TRACE(name_of(isa));
          compare_ops({}, kind, inputs);
        }
        for (const Device device : other_devices()) compare_ops(device, kind, inputs);
      }
    }
}

// Counts the calls of each op.
class Calls : public Recorder {
 public:
  void begins(const AnyOp& op, const TraceValues&) override { ++counts_[op.name()]; }
  void ends(const TraceValues&, const OpWork&) override {}
  int operator[](const std::string& name) { return counts_[name]; }

 private:
  std::map<std::string, int> counts_;
};

struct Net {
  Var start{normal({3, 5, 33}, "start"), true};
  LayerNorm first, last;
  RmsNorm second;

  Net() {
    const auto parameter = [](const char* name) { return Var(normal({33}, name), true); };
    first.weight = parameter("first");
    first.bias = parameter("bias");
    second.weight = parameter("second");
    last.weight = parameter("last");
  }

  // Returns values and gradients of a block of two branches between `start` and the last norm.
  template <class Stream, class Block>
  Tensors run(const Block& block, bool recompute) {
    Context context{.training = true, .recompute = recompute};
    Stream x = run_block(block, Stream(start * 2.0), context);
    const Var norm = last(x), stream = x, y = norm * 0.5 + stream;
    const Tensor value = y.value();
    backward(sum(square(y)));
    return {value, start.grad(), first.weight.grad(), first.bias.grad(), second.weight.grad(), last.weight.grad()};
  }
  Tensors with_sums_at_once(bool recompute) {
    return run<Var>(
        [this](const Var& x, Context&) {
          const Var y = x + gelu(first(x));
          return y + silu(second(y));
        },
        recompute);
  }
  Tensors with_residual(bool recompute) {
    return run<Residual>(
        [this](Residual x, Context&) {
          x += gelu(first(x));
          x += silu(second(x));
          return x;
        },
        recompute);
  }
};

TEST(Residual, StreamsHaveTheBitsOfSumsMadeAtOnce) {
  const Tensors expected = Net().with_sums_at_once(false);
  for (const bool recompute : {false, true}) {
    const Tensors got = Net().with_residual(recompute);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], expected[i])) << "tensor " << i << (recompute ? ", recomputed" : "");
  }
}

TEST(Residual, NormsMakeTheSums) {
  Net net;
  Calls calls;
  {
    const RecordScope recording(calls);
    net.with_residual(false);
  }
  EXPECT_EQ(calls["layer_norm"], 1);  // that of the start
  EXPECT_EQ(calls["rms_norm"], 0);
  EXPECT_EQ(calls["add_norm"], 2);
  EXPECT_EQ(calls["add"], 1);  // in y
}

// If no norm follows a branch, or not yet, the stream is the sum.
TEST(Residual, IsTheSumToOthers) {
  const Var a = normal({2, 3}, "a"), b = normal({2, 3}, "b"), c = normal({2, 3}, "c");
  Residual x = a;
  EXPECT_TRUE(same_bits(Var(x).value(), a.value()));
  x += b;
  EXPECT_TRUE(same_bits(Var(x).value(), (a + b).value()));
  x += c;
  EXPECT_TRUE(same_bits(Var(x).value(), (a + b + c).value()));
}

}  // namespace
}  // namespace elinvar::test
