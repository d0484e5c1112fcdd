#include "tests/ops/op_row.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <set>

#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/stream.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tools/trace/reproducer.h"

namespace elinvar::test {
namespace {

struct Outcome {
  Tensor value;
  Tensors grads;  // gradients of each differentiable input, in order
};

using Op = std::function<Var(const Vars&)>;

bool takes_gradient(const OpRow& row, const Input& input) {
  return row.differentiable && input.differentiable && input.kind != Input::Kind::index &&
         input.kind != Input::Kind::mask;
}

// Returns the sum of w * y, whose gradient is w: the direction in which a gradient is tested.
Var project(const Var& y, const Tensor& w) {
  const Tensor a = y.value().to(Device{}).to(DType::f64).to_contiguous(), b = w.to(DType::f64).to_contiguous();
  double s = 0.0;
  for (int64_t i = 0; i < a.numel(); ++i) s += a.data<double>()[i] * b.data<double>()[i];
  return record(Tensor::scalar(s, y.dtype()), {y},
                [w, device = y.value().device()](const Tensor&) { return std::vector<Tensor>{w.to(device)}; });
}

Outcome evaluate(const OpRow& row, const Op& op, const Inputs& inputs, const Tensors& values) {
  Vars vars;
  bool any = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    vars.emplace_back(values[i], takes_gradient(row, inputs[i]));
    any = any || vars.back().requires_grad();
  }
  const Var y = op(vars);
  Outcome outcome{y.value(), {}};
  if (!any) return outcome;
  backward(project(y, normal(y.shape(), row.name + "/direction", y.dtype())));
  for (const Var& v : vars) {
    if (!v.requires_grad()) continue;
    outcome.grads.push_back(v.grad().defined() ? v.grad() : Tensor::zeros(v.shape(), v.dtype()));
  }
  return outcome;
}

void expect_same(const Outcome& a, const Outcome& b, bool finite_only = false) {
  EXPECT_TRUE(same_bits(a.value, b.value, finite_only)) << "in the value";
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (size_t i = 0; i < a.grads.size(); ++i)
    EXPECT_TRUE(same_bits(a.grads[i], b.grads[i], finite_only)) << "in gradient " << i;
}

Tensors in_double(const Tensors& values) {
  Tensors out;
  for (const Tensor& t : values) out.push_back(is_floating(t.dtype()) ? t.to(DType::f64) : t);
  return out;
}

double value_of(const OpRow& row, const Tensors& values, const Tensor& direction) {
  NoGrad no_grad;
  const Var y = row.op(Vars(values.begin(), values.end()));
  return project(y, direction).value().item();
}

void check_oracle(const OpRow& row) {
  const Tensors values = make_inputs(row.inputs, row.name);
  NoGrad no_grad;
  const Tensor reference = row.oracle(in_double(values));
  const auto result = [&](const Tensors& v) { return row.op(Vars(v.begin(), v.end())).value(); };
  EXPECT_TRUE(close_to(result(values), reference, row.tolerance)) << "in float32";
  const Tensor y = result(in_double(values));
  EXPECT_TRUE(close_to(y, reference, y.dtype() == DType::f64 ? 1e-10 : row.tolerance)) << "in float64";
  if (row.large.empty()) return;
  const Tensors large = make_inputs(row.large, row.name + "/large");
  EXPECT_TRUE(close_to(result(large), row.oracle(in_double(large)), row.large_tolerance)) << "in float32, large";
}

void expect_float32_gradients(const OpRow& row, const Inputs& inputs, const Tensors& values) {
  const Outcome wide = evaluate(row, row.op, inputs, in_double(values)),
                working = evaluate(row, row.op, inputs, values);
  for (size_t i = 0; i < wide.grads.size(); ++i)
    EXPECT_TRUE(close_to(working.grads[i], wide.grads[i], row.large_tolerance)) << "in float32 gradient " << i;
}

void check_gradient(const OpRow& row) {
  constexpr int64_t kMostElements = 200;  // elements tried of each input
  const Tensors working = make_inputs(row.inputs, row.name);
  Tensors values = in_double(working);
  const Outcome outcome = evaluate(row, row.op, row.inputs, values);
  const Tensor direction = normal(outcome.value.shape(), row.name + "/direction", outcome.value.dtype());
  size_t g = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!takes_gradient(row, row.inputs[i])) continue;
    const Tensor analytic = outcome.grads[g++].to_contiguous();
    ASSERT_TRUE(analytic.dtype() == DType::f64 && analytic.shape() == values[i].shape())
        << "gradient of input " << i << " is " << name_of(analytic.dtype()) << to_string(analytic.shape());
    double scale = 1e-3;
    for (double v : analytic.span<double>()) scale = std::max(scale, std::abs(v));
    const Tensor original = values[i];
    const int64_t n = original.numel(), stride = n / kMostElements + 1;
    for (int64_t e = 0; e < n; e += stride) {
      const double x = original.data<double>()[e], h = 1e-5 * std::max(1.0, std::abs(x));
      const auto at = [&](double moved) {
        values[i] = original.clone();
        values[i].data<double>()[e] = moved;
        return value_of(row, values, direction);
      };
      const double above = x + h, below = x - h;
      const double numeric = (at(above) - at(below)) / (above - below);
      // A central difference has errors of order h^2 and 2^-52 / h, both below 1e-6.
      EXPECT_NEAR(analytic.data<double>()[e], numeric, 1e-6 * scale) << "input " << i << ", element " << e;
      if (::testing::Test::HasFailure()) return;
    }
    values[i] = original;
  }
  expect_float32_gradients(row, row.inputs, working);
  if (!row.large.empty()) expect_float32_gradients(row, row.large, make_inputs(row.large, row.name + "/large"));
}

void check_bits(const OpRow& row) {
  const auto sweep = [&](const Inputs& inputs, const Tensors& values, const char* size) {
    Outcome reference;
    const std::vector<Isa> isas = available_isas();
    for (Isa isa : isas) {
      for (int threads : {1, 2, 3}) {
        const int runs = isa == isas.back() && threads > 1 ? 2 : 1;
        for (int run = 0; run < runs; ++run) {
          set_isa(isa);
          set_threads(threads);
          Outcome outcome = evaluate(row, row.op, inputs, values);
          if (!reference.value.defined()) reference = outcome;
          SCOPED_TRACE(fmt::format("{} inputs, {}, {} threads, run {}, against {} and 1 thread", size, name_of(isa),
                                   threads, run, name_of(isas.front())));
          expect_same(outcome, reference);
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  };
  sweep(row.inputs, make_inputs(row.inputs, row.name), "ordinary");
  if (!row.large.empty()) sweep(row.large, make_inputs(row.large, row.name + "/large"), "large");
}

template <DeviceKind kind>
void check_device(const OpRow& row) {
  constexpr Device device{kind};
  if (!is_here(device)) GTEST_SKIP() << "this machine has no GPU";
  const auto compare = [&](const Inputs& inputs, const Tensors& values, const char* size) {
    SCOPED_TRACE(size);
    const Outcome reference = evaluate(row, row.op, inputs, values);
    Tensors moved;
    for (const Tensor& t : values) moved.push_back(t.to(device));
    Outcome outcome = evaluate(row, row.op, inputs, moved);
    EXPECT_TRUE(outcome.value.device() == device) << "the result is on a " << name_of(outcome.value.device().kind);
    outcome.value = outcome.value.to(Device{});
    for (Tensor& g : outcome.grads) g = g.to(Device{});
    expect_same(outcome, reference);
  };
  compare(row.inputs, make_inputs(row.inputs, row.name), "ordinary inputs");
  compare(row.inputs, make_inputs(row.inputs, row.name + "/adversarial", Values::adversarial), "adversarial inputs");
  compare(row.inputs, make_inputs(row.inputs, row.name + "/zeros", Values::zeros), "zeros");
  if (::testing::Test::HasFailure() || row.large.empty()) return;
  compare(row.large, make_inputs(row.large, row.name + "/large"), "large inputs");
}

void check_layout(const OpRow& row) {
  const Tensors values = make_inputs(row.inputs, row.name);
  const Outcome reference = evaluate(row, row.op, row.inputs, values);
  Tensors views, narrow;
  for (const Tensor& t : values) {
    views.push_back(in_other_layout(t));
    narrow.push_back(t.dtype() == DType::i64 ? t.to(DType::i32) : t);
  }
  {
    SCOPED_TRACE("inputs that are not contiguous");
    expect_same(evaluate(row, row.op, row.inputs, views), reference);
  }
  SCOPED_TRACE("int32 indices");
  expect_same(evaluate(row, row.op, row.inputs, narrow), reference);
}

// Repeats each op that is reported to it.
class Replays : public Recorder {
 public:
  void begins(const AnyOp& op, const TraceValues& arguments) override {
    again_ = Reproducer{.op = op.name(), .arguments = copied(arguments)};
  }
  void ends(const TraceValues& results, const OpWork&) override {
    ++ops;
    SCOPED_TRACE(again_.op);
    const TraceValues now = call(again_, Device{});
    ASSERT_EQ(now.size(), results.size());
    for (size_t i = 0; i < now.size(); ++i) {
      EXPECT_EQ(now[i].name, results[i].name);
      EXPECT_EQ(now[i].number, results[i].number) << now[i].name;
      ASSERT_EQ(now[i].tensor.defined(), results[i].tensor.defined()) << now[i].name;
      if (!now[i].tensor.defined()) continue;
      EXPECT_TRUE(same_bits(now[i].tensor, results[i].tensor)) << now[i].name;
    }
  }

  int ops = 0;

 private:
  Reproducer again_;
};

void check_replay(const OpRow& row) {
  const Tensors values = make_inputs(row.inputs, row.name);
  Tensors views;
  for (const Tensor& t : values) views.push_back(in_other_layout(t));
  for (const Tensors& inputs : {values, views}) {
    Replays replays;
    const RecordScope recording(replays);
    evaluate(row, row.op, row.inputs, inputs);
    EXPECT_GT(replays.ops, 0) << "nothing was recorded";
  }
}

void check_zero_fill(const OpRow& row) {
  const Tensors values = make_inputs(row.inputs, row.name + "/adversarial", Values::adversarial);
  for (Isa isa : available_isas()) {
    set_isa(isa);
    SCOPED_TRACE(name_of(isa));
    const Outcome plain = evaluate(row, row.op, row.inputs, values);
    expect_same(evaluate(row, row.zero_filled, row.inputs, values), plain, /*finite_only=*/true);
    const Tensor y = plain.value.to(DType::f64).to_contiguous();
    const auto finite =
        std::count_if(y.span<double>().begin(), y.span<double>().end(), [](double v) { return std::isfinite(v); });
    EXPECT_GE(2 * finite, y.numel()) << "most adversarial results overflow, so that little is tested";
  }
}

void check_errors(const OpRow& row) {
  for (const auto& [call, text] : row.errors) {
    try {
      call();
      ADD_FAILURE() << "expected a UsageError with \"" << text << "\", but nothing was thrown";
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos)
          << "expected \"" << text << "\" in the message \"" << e.what() << "\"";
    }
  }
}

class RowTest : public ::testing::Test {
 public:
  RowTest(const OpRow& row, void (*body)(const OpRow&)) : row_(row), body_(body) {}
  void TestBody() override { body_(row_); }
  void TearDown() override {
    set_isa(available_isas().back());
    set_threads(1);
  }

 private:
  const OpRow& row_;
  void (*body_)(const OpRow&);
};

// Some characters have a meaning in GoogleTest's filters.
std::string test_name(std::string name) {
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '/') c = '_';
  return name;
}

void register_test(const OpRow& row, const char* check_name, void (*body)(const OpRow&)) {
  ::testing::RegisterTest(test_name(row.name).c_str(), check_name, nullptr, nullptr, __FILE__, __LINE__,
                          [&row, body]() -> RowTest* { return new RowTest(row, body); });
}

}  // namespace

OpRows::OpRows(std::vector<OpRow> rows) {
  static std::set<std::string> names;
  // Rows live as long as the process, because tests run after main() has begun and refer to them.
  static std::list<std::vector<OpRow>> all;
  const std::vector<OpRow>& kept = all.emplace_back(std::move(rows));
  for (const OpRow& row : kept) {
    if (!names.insert(test_name(row.name)).second) {
      std::fprintf(stderr, "two op rows are named %s\n", row.name.c_str());
      std::abort();
    }
    if (row.oracle) register_test(row, "oracle", check_oracle);
    if (std::any_of(row.inputs.begin(), row.inputs.end(), [&](const Input& i) { return takes_gradient(row, i); }))
      register_test(row, "gradcheck", check_gradient);
    if (row.op) {
      register_test(row, "bits", check_bits);
      register_test(row, "layout", check_layout);
      register_test(row, "replay", check_replay);
      for (const Device device : devices_of_the_build()) {
        if (device.kind == DeviceKind::emulated) register_test(row, "emulated", check_device<DeviceKind::emulated>);
        else register_test(row, "cuda", check_device<DeviceKind::cuda>);
      }
    }
    if (row.zero_filled) register_test(row, "zero_fill", check_zero_fill);
    if (!row.errors.empty()) register_test(row, "errors", check_errors);
  }
}

}  // namespace elinvar::test
