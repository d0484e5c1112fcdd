// Ops as objects: the reports to a recorder, which change nothing, and calls of an op from a file. Each op row
// (op_row.h) tests that its op is reported completely.
#include "tensor/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "autograd/pointwise.h"
#include "autograd/reduce.h"
#include "nn/optimizer.h"
#include "tensor/base/check.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/batch_norm.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/dropout.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/pointwise.h"
#include "tests/places.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"
#include "tools/trace/reproducer.h"
#include "tools/trace/trace_file.h"
#include "tools/trace/tracer.h"

namespace elinvar {
namespace {

using test::same_bits;

// Records reports as text.
struct Notes : Recorder {
  void begins(const AnyOp& op, const TraceValues& arguments) override {
    names.push_back(op.name());
    parts.push_back(trace_part());
    told.push_back(text_of(arguments));
  }
  void ends(const TraceValues& results, const OpWork&) override { told.back() += "-> " + text_of(results); }

  static std::string text_of(const TraceValues& values) {
    std::string text;
    for (const TracedValue& value : described(values)) text += value.text() + "; ";
    return text;
  }
  std::vector<std::string> names, parts, told;
};

Tensor numbers(const Shape& shape, double first = 1.0) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(first + 0.5 * static_cast<double>(i));
  return x;
}

TEST(Trace, ArgumentsAndResultsHaveTheNamesOfTheSignature) {
  Notes notes;
  const RecordScope recording(notes);
  (void)dropout(numbers({2, 3}), 0.25, {.seed = 7, .step = 1, .vrank = 2, .op = 3});
  (void)matmul(numbers({2, 3}), numbers({3, 2}));
  ASSERT_EQ(notes.told.size(), 2u);
  EXPECT_EQ(notes.told[0],
            "x float32 (2, 3); p = 0.25; rng.seed = 7; rng.step = 1; rng.vrank = 2; rng.op = 3; -> y float32 (2, 3); ");
  EXPECT_EQ(notes.told[1],
            "a float32 (2, 3); b float32 (3, 2); bias absent; precision = 0; result = 0; -> c float32 (2, 2); ");
}

TEST(Trace, OpsWithinAnOpArePartOfIt) {
  Notes notes;
  const RecordScope recording(notes);
  const Tensor x = numbers({4, 3}).transpose(0, 1);
  (void)tanh(x);             // copies x to a contiguous tensor first
  (void)Tensor::zeros({2});  // a fill
  EXPECT_EQ(notes.names, (std::vector<std::string>{"tanh", "fill"}));
}

TEST(Trace, WhatIsChangedInPlaceIsToldOfBeforeAndAfter) {
  Tensor y = numbers({2, 2});
  const Tensor x = numbers({2, 2}, 10);
  const std::string before = described({{.name = "y", .kind = TraceValue::Kind::tensor, .tensor = y}})[0].digest;
  Tracer tracer(size_t{0});
  {
    const RecordScope recording(tracer);
    add_into(y, x);
    Tensor z = Tensor::empty({2, 2});
    copy(y, z);
  }
  const std::vector<TracedOp> ops = tracer.take_ops();
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].arguments[0].digest, before);
  EXPECT_NE(ops[0].results.at(0).digest, before);
  EXPECT_EQ(ops[0].results.at(0).name, "y");
  EXPECT_EQ(ops[1].arguments.at(1).digest, "") << "what was in a place before counts for nothing";
  EXPECT_EQ(ops[1].results.at(0).digest, ops[0].results.at(0).digest);
  EXPECT_TRUE(same_bits(tracer.kept()->arguments.at(0).tensor, numbers({2, 2}))) << "kept as it was before";
}

TEST(Trace, ARecordedOpWritesOverWhatOnlyItHolds) {
  Tensor sum = numbers({64});
  const void* place = sum.raw();
  Tracer tracer;
  const RecordScope recording(tracer);
  sum = add_to(std::move(sum), numbers({64}));
  EXPECT_EQ(sum.raw(), place);
  sum = dropout(std::move(sum), 0.5, {});
  EXPECT_EQ(sum.raw(), place);
}

TEST(Trace, TheBackwardPassIsAPartOfItsOwn) {
  Notes notes;
  const RecordScope recording(notes);
  const Var x(numbers({3}), true);
  backward(sum(tanh(x)));
  ASSERT_EQ(notes.names, (std::vector<std::string>{"tanh", "row_sum", "fill", "tanh_backward"}));
  EXPECT_EQ(notes.parts, (std::vector<std::string>{"", "", "backward", "backward"}));
}

TEST(Trace, AnOpThatThrowsIsNotTheLastToBeRecorded) {
  Notes notes;
  const RecordScope recording(notes);
  EXPECT_THROW((void)matmul(numbers({2, 3}), numbers({2, 3})), UsageError);
  (void)tanh(numbers({1}));
  EXPECT_EQ(notes.names, (std::vector<std::string>{"matmul", "tanh"}));
}

// Optimisers change lists of tensors, each with its constants.
TEST(Trace, UpdatesAreDoneAgain) {
  for (const char* kind : {"sgd", "lars", "adam", "adamw", "lamb"}) {
    SCOPED_TRACE(kind);
    Parameters p;
    p.list.push_back({"weight", Var(numbers({9, 7}), true), true});
    p.list.push_back({"bias", Var(numbers({7}), true), false});
    const auto optimizer = make_optimizer({.kind = kind, .momentum = 0.9, .weight_decay = 0.01}, p);
    Tracer tracer;
    size_t ops = 0;
    {
      const RecordScope recording(tracer);
      const std::vector<Tensor> gradients = {numbers({9, 7}, -3), numbers({7}, 2)};
      optimizer->step(p, gradients, 0.1, 0);
      ops = tracer.take_ops().size();
    }
    EXPECT_GE(ops, 1u);
    for (size_t i = 0; i < ops; ++i) {
      Tracer single(i);
      {
        const RecordScope recording(single);
        const std::vector<Tensor> gradients = {numbers({9, 7}, -3), numbers({7}, 2)};
        optimizer->step(p, gradients, 0.1, 1);
      }
      const TraceValues now = call(*single.kept(), Device{});
      const TraceValues& then = single.kept()->sides.at(0).results;
      ASSERT_EQ(now.size(), then.size());
      for (size_t r = 0; r < now.size(); ++r) {
        EXPECT_EQ(now[r].number, then[r].number) << now[r].name;
        if (now[r].kind == TraceValue::Kind::number) continue;
        EXPECT_TRUE(same_bits(now[r].tensor, then[r].tensor)) << now[r].name;
      }
    }
  }
}

TEST(Trace, NumbersReadBackAsTheSameBits) {
  for (const double x : {0.1, -0.0, 1e-320, 1e300, std::numeric_limits<double>::infinity(), 1.0 / 3.0}) {
    double y = 1;
    trace::parse(trace::text_of(x), y);
    EXPECT_EQ(std::bit_cast<uint64_t>(y), std::bit_cast<uint64_t>(x));
  }
  for (const float x : {0.1f, 1e-44f, -3e38f}) {
    float y = 1;
    trace::parse(trace::text_of(x), y);
    EXPECT_EQ(std::bit_cast<uint32_t>(y), std::bit_cast<uint32_t>(x));
  }
  for (const Shape& x : {Shape{}, Shape{5}, Shape{2, 0, 3}}) {
    Shape y{9};
    trace::parse(trace::text_of(x), y);
    EXPECT_EQ(y, x);
  }
  int64_t n = 0;
  EXPECT_THROW(trace::parse("12x", n), UsageError);
  Shape shape;
  EXPECT_THROW(trace::parse("(1, 2", shape), UsageError);
}

TEST(Trace, OpsAreKnownByTheirNames) {
  ASSERT_NE(find_op("matmul"), nullptr);
  EXPECT_EQ(find_op("matmul")->name(), "matmul");
  EXPECT_EQ(find_op("matmull"), nullptr);
}

TEST(Trace, WhatIsNoArgumentOfAnOpIsRefused) {
  const AnyOp& dropout_op = *find_op("dropout");
  const TraceValue x{.name = "x", .kind = TraceValue::Kind::tensor, .tensor = numbers({2})};
  EXPECT_THROW((void)dropout_op.call({}), UsageError);
  EXPECT_THROW((void)dropout_op.call({x, x}), UsageError);
  EXPECT_THROW((void)find_op("tanh")->call({x, x}), UsageError);
  EXPECT_THROW((void)find_op("segment_sums")->call({{.name = "tensors.size", .number = "1000000000000"}, x}),
               UsageError);
}

TEST(Trace, NumbersThatAParameterCannotHaveAreRefused) {
  const auto number = [](const char* text) { return TraceValue{.name = "n", .number = text}; };
  const TraceValue x{.name = "x", .kind = TraceValue::Kind::tensor, .tensor = numbers({2})};
  const auto message = [](const char* op, TraceValues values) {
    return test::message_of<UsageError>([&] { (void)find_op(op)->call(std::move(values)); });
  };
  EXPECT_NE(message("row_norm_backward", {number("2")}).find("a number from 0 to 1 expected, got 2"),
            std::string::npos);
  EXPECT_NE(message("gather", {x, number("4294967296"), x}).find("expected, got 4294967296"), std::string::npos);
  EXPECT_NE(message("max", {x, number("0"), number("2")}).find("a number from 0 to 1 expected, got 2"),
            std::string::npos);
  EXPECT_NE(message("dropout", {x, number("0.5"), number("1"), number("4294967296")}).find("got 4294967296"),
            std::string::npos);
}

TEST(Reproducer, LayoutsAreMadeAgain) {
  const Tensor whole = numbers({4, 3, 2, 5});
  const Tensor views[] = {whole,
                          whole.transpose(0, 3),
                          whole.slice(3, 1, 4),
                          whole.select(2, 1),
                          whole.slice(1, 0, 2).permute({3, 1, 0, 2}),
                          numbers({4, 6}).slice(1, 0, 6, 2),
                          numbers({1, 3}).expand({4, 3}),
                          numbers({3, 1}).expand({2, 3, 4}),
                          Tensor::scalar(3),
                          Tensor::empty({0, 3})};
  for (const Tensor& x : views) {
    const Tensor y = laid_out(x, x.strides(), Device{});
    EXPECT_TRUE(same_bits(y, x));
    EXPECT_FALSE(y.shares_storage(x));
    EXPECT_EQ(y.contiguous(), x.contiguous());
    EXPECT_TRUE(x.contiguous() || y.strides() == x.strides()) << to_string(y.strides());
  }
}

TEST(Reproducer, AFileHoldsTheCallAndBothResults) {
  const test::TemporaryFolder folder;
  Tracer tracer(size_t{0});
  {
    const RecordScope recording(tracer);
    (void)attention(numbers({1, 3, 2, 4}).transpose(1, 2), numbers({1, 2, 3, 4}), numbers({1, 2, 3, 4}), false, 0.5);
  }
  Reproducer r = *tracer.kept();
  r.sides.push_back(r.sides[0]);
  r.sides[1].results[0].tensor = r.sides[1].results[0].tensor.clone();
  r.sides[1].results[0].tensor.data<float>()[0] += 1;
  r.sides[0].about = {{"isa", "scalar"}};
  write_reproducer(folder / "op.safetensors", r);
  const Reproducer back = read_reproducer(folder / "op.safetensors");
  EXPECT_EQ(back.op, "attention");
  EXPECT_EQ(back.sides.at(0).about.at("isa"), "scalar");
  EXPECT_EQ(back.arguments.at(0).tensor.strides(), r.arguments.at(0).tensor.strides());
  const TraceValues now = call(back, Device{});
  ASSERT_EQ(now.size(), 3u);
  EXPECT_TRUE(same_bits(now[0].tensor, back.sides[0].results[0].tensor));
  EXPECT_FALSE(same_bits(now[0].tensor, back.sides[1].results[0].tensor));
  EXPECT_TRUE(same_bits(now[1].tensor, back.sides[1].results[1].tensor));

  EXPECT_NE(test::message_of<Failure>([&] { (void)read_reproducer(folder / "absent"); }), "");
  Reproducer unknown = back;
  unknown.op = "atention";
  EXPECT_NE(test::message_of<UsageError>([&] { (void)call(unknown, Device{}); }).find("'attention'"),
            std::string::npos);
}

// Files written by version 0.1.0: structs as arguments and results, and a list of them.
TEST(Reproducer, EarlierFilesAreReadAndDoneAgain) {
  for (const char* op : {"row_norm_backward", "running_mean"}) {
    SCOPED_TRACE(op);
    const Reproducer r =
        read_reproducer(std::string(ELINVAR_SOURCE_DIR "/tests/golden/reproducer_") + op + ".safetensors");
    EXPECT_EQ(r.op, op);
    const TraceValues now = call(r, Device{}), &then = r.sides.at(0).results;
    ASSERT_EQ(now.size(), then.size());
    for (size_t i = 0; i < now.size(); ++i) {
      EXPECT_EQ(now[i].name, then[i].name);
      if (now[i].tensor.defined()) EXPECT_TRUE(same_bits(now[i].tensor, then[i].tensor)) << now[i].name;
      else EXPECT_EQ(now[i].number, then[i].number) << now[i].name;
    }
  }
}

TEST(TraceFile, TellsWhereTwoTracesPart) {
  using What = Parting::What;
  const auto traced = [](double p, float first) {
    Tracer tracer;
    tracer.at("leaf 0");
    const RecordScope recording(tracer);
    (void)tanh(numbers({4}));
    (void)dropout(numbers({4}, first), p, {});
    Trace trace;
    trace.header = {{"trace", kTraceVersion}};
    trace.ops = tracer.take_ops();
    return trace;
  };
  const test::TemporaryFolder folder;
  const Trace a = traced(0.5, 1);
  write_trace(folder / "a", a);
  EXPECT_EQ(first_parting(a, read_trace(folder / "a")).what, What::nothing);
  EXPECT_EQ(a.ops[0].phase, "leaf 0 forward");

  Parting parting = first_parting(a, traced(0.25, 1));
  EXPECT_EQ(parting.what, What::number);
  EXPECT_EQ(parting.op, 1u);
  EXPECT_EQ(parting.value, "p");
  parting = first_parting(a, traced(0.5, 2));
  EXPECT_EQ(parting.what, What::argument);
  EXPECT_EQ(parting.value, "x");
  Trace b = a;
  b.ops[1].results[0].digest = std::string(32, '0');
  parting = first_parting(a, b);
  EXPECT_EQ(parting.what, What::op);
  EXPECT_EQ(parting.op, 1u);
  b.ops.pop_back();
  EXPECT_EQ(first_parting(a, b).what, What::program);
}

TEST(TraceFile, EqualTensorsAreToldApartByTheOtherSide) {
  const auto named = [](const nlohmann::ordered_json& names) {
    Trace trace;
    trace.header = {{"trace", kTraceVersion}, {"names", names}};
    return trace;
  };
  using Names = std::vector<std::string>;
  const Names biases = {"model.0.bias", "model.1.bias", "model.2.bias"};
  const Trace a = named({{"zero", biases}, {"w", {"model.w"}}}),
              b = named({{"zero", {"model.0.bias", "model.2.bias"}}, {"flipped", {"model.1.bias"}}});
  EXPECT_EQ(known_as(a, "zero", b, "flipped"), Names{"model.1.bias"});
  EXPECT_EQ(known_as(b, "flipped", a, "zero"), Names{"model.1.bias"});
  EXPECT_EQ(known_as(a, "zero", a, "zero"), biases);
  EXPECT_EQ(known_as(a, "w", b, "nothing"), Names{"model.w"});
  EXPECT_EQ(known_as(a, "nothing", b, "nothing"), Names{});
}

}  // namespace
}  // namespace elinvar
