// Sparse tables of which each process keeps some rows: their updates have the bits of the whole update, and passes look
// up rows that lie elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "nn/initializers.h"
#include "nn/network.h"
#include "nn/sliced_optimizer.h"
#include "nn/touched_rows.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/embedding.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"

namespace elinvar {
namespace {

constexpr int64_t kRows = 6000, kWidth = 4, kSamples = 40;
constexpr int64_t kCutRows = 1024;  // of which a slice has whole segments of 4096 elements
constexpr int64_t kSteps = 4;

Tensor uniform_numbers(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  init::uniform(0.5)(x, key);
  return x;
}

// A sparse table, which may grow, and a dense matrix.
struct Tables {
  Parameters parameters;
  explicit Tables(bool grows, Device device = {}) {
    const auto touched =
        std::make_shared<TouchedRows>(1, [](const Inputs& inputs) { return inputs.first.to(DType::i64); });
    const Scope scope(parameters, 1);
    (void)scope.table("table", {kRows, kWidth}, grows ? init::constant(0.0) : init::uniform(0.1), touched);
    (void)scope.parameter("matrix", {70, 90}, init::uniform(0.1));
    const auto initial = [](std::span<const int64_t> ids, Tensor& rows) { init::uniform_rows(0.1)(ids, rows, 7); };
    if (grows) touched->grow({.ids = scope.buffer("ids", {kRows}, -1, DType::i64), .initialise = initial});
    make_sparse(parameters, std::vector<std::string>{"table"}, kSamples);
    parameters.move_to(device);
  }
  TouchedRows& touched() { return *parameters.list[0].touched; }
  const Tensor& table() { return parameters.list[0].var.value(); }
};

// Rows repeat from step to step, so that their state counts.
Tensor batch_of(int64_t step) {
  Tensor batch = Tensor::empty({kSamples, 1}, DType::i64);
  for (int64_t i = 0; i < kSamples; ++i) {
    const uint64_t word = philox(3, static_cast<uint32_t>(i % 2 == 0 ? i : 100 * step + i), 0, 0, 0).v[0];
    batch.data<int64_t>()[i] = static_cast<int64_t>(word % kRows);
  }
  return batch;
}

// The gradients of the table's places and of the matrix.
std::vector<Tensor> gradients_of(const Parameters& p, int64_t step) {
  std::vector<Tensor> gradients;
  for (const Parameter& each : p.list)
    gradients.push_back(uniform_numbers(each.var.grad_shape(), static_cast<uint64_t>(10 * step) + gradients.size())
                            .to(each.var.value().device()));
  return gradients;
}

OptimizerConfig config_of(const std::string& kind) {
  return {.kind = "adamw", .lr = 0.1, .weight_decay = 0.01, .sparse = {"table"}, .sparse_kind = kind};
}

StateDict outcome_of(const Parameters& parameters, const StateDict& state) {
  StateDict all;
  for (const auto& [name, tensor] : parameters.state()) all.emplace(name, tensor.to(Device{}).clone());
  for (const auto& [name, tensor] : state) all.emplace("state." + name, tensor.to(Device{}).clone());
  return all;
}

StateDict whole_run(const std::string& kind, bool grows) {
  Tables whole(grows);
  const auto optimizer = make_optimizer(config_of(kind), whole.parameters);
  for (int64_t step = 0; step < kSteps; ++step) {
    touch(whole.parameters, batch_of(step));
    optimizer->step(whole.parameters, gradients_of(whole.parameters, step), 0.05, step, 0.5);
  }
  return outcome_of(whole.parameters, optimizer->state());
}

// Slices of the table go to the processes in turn, the matrix to the last one.
std::vector<std::vector<Slice>> dealt(size_t processes, size_t first) {
  std::vector<std::vector<Slice>> slices(processes);
  for (int64_t row = 0; row < kRows; row += kCutRows)
    slices[(first + static_cast<size_t>(row / kCutRows)) % processes].push_back(
        {0, row * kWidth, std::min(row + kCutRows, kRows) * kWidth});
  slices.back().push_back({1, 0, 70 * 90});
  return slices;
}

// Trains with processes of which each keeps some slices; half way they keep others.
StateDict divided_run(const std::string& kind, bool grows, size_t processes, Device device = {}) {
  std::vector<std::unique_ptr<Tables>> tables;
  std::vector<std::unique_ptr<SlicedOptimizer>> optimizers;
  for (size_t i = 0; i < processes; ++i) {
    tables.push_back(std::make_unique<Tables>(grows, device));
    optimizers.push_back(
        std::make_unique<SlicedOptimizer>(config_of(kind), tables[i]->parameters, dealt(processes, 0)[i]));
  }
  StateDict state;
  const auto whole = make_optimizer(config_of(kind), tables[0]->parameters);
  const auto join = [&] {
    state = whole->state();
    for (const auto& optimizer : optimizers)
      for (SlotSlice& slot : optimizer->slots()) {
        Tensor place = view_of(state.at(slot.name), slot.slice);
        copy(slot.values, place);
      }
  };
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == kSteps / 2) {
      join();
      for (size_t i = 0; i < processes; ++i) {
        optimizers[i]->keep(dealt(processes, 1)[i]);
        for (SlotSlice& slot : optimizers[i]->slots()) copy(view_of(state.at(slot.name), slot.slice), slot.values);
      }
    }
    for (size_t i = 0; i < processes; ++i) {
      Parameters& parameters = tables[i]->parameters;
      touch(parameters, batch_of(step));
      const std::vector<Tensor> gradients = gradients_of(parameters, step);
      std::vector<Tensor> dense;
      for (const Slice& slice : optimizers[i]->slices())
        if (slice.tensor == 1) dense.push_back(view_of(gradients[1], slice));
      optimizers[i]->step(parameters, dense, 0.05, step, 0.5, {}, {}, gradients);
      commit_touched(parameters);
      EXPECT_EQ(tables[i]->touched().updated().numel(), tables[i]->touched().rows().numel());
    }
    for (size_t from = 0; from < processes; ++from)
      for (const Slice& slice : optimizers[from]->slices())
        for (size_t to = 0; to < processes; ++to) {
          if (to == from) continue;
          const auto t = static_cast<size_t>(slice.tensor);
          Tensor place = view_of(tables[to]->parameters.list[t].var.value(), slice);
          copy(view_of(tables[from]->parameters.list[t].var.value(), slice), place);
        }
  }
  join();
  return outcome_of(tables.back()->parameters, state);
}

void expect_equal(const StateDict& got, const StateDict& expected, const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(test::same_bits(got.at(name), tensor)) << where << name;
}

TEST(SlicedTables, HaveTheBitsOfTheWholeUpdate) {
  for (const std::string& kind : sparse_kinds())
    for (const bool grows : {false, true}) {
      const StateDict expected = whole_run(kind, grows);
      EXPECT_EQ(expected.count("state.table.m"), kind == "adam" || kind == "adamw");
      for (const size_t processes : {1, 3})
        expect_equal(divided_run(kind, grows, processes), expected,
                     fmt::format("{}, {} processes, grows {}: ", kind, processes, grows));
      for (const Device device : test::other_devices())
        expect_equal(divided_run(kind, grows, 2, device), expected, kind + " on " + to_string(device) + ": ");
    }
}

// The rows of an absent table come when they are looked up, each once in a step.
TEST(SlicedTables, RowsOfAnAbsentTableAreFetched) {
  for (const bool grows : {false, true}) {
    Tables there(grows), away(grows);
    const Tensor batch = batch_of(1), others = batch_of(2);
    const auto optimizer = make_optimizer(config_of("adam"), there.parameters);
    touch(there.parameters, batch_of(0));
    optimizer->step(there.parameters, gradients_of(there.parameters, 0), 0.05, 0);
    for (size_t i = 0; grows && i < away.parameters.buffers.size(); ++i)
      copy(there.parameters.buffers[i]->value, away.parameters.buffers[i]->value);
    away.parameters.list[0].var.mutable_value() = Tensor::absent({kRows, kWidth});
    std::vector<int64_t> asked;
    away.touched().fetch_by([&](std::span<const int64_t> rows) {
      EXPECT_TRUE(std::ranges::is_sorted(rows));
      asked.insert(asked.end(), rows.begin(), rows.end());
      return embedding(there.table(), Tensor::from(rows, {std::ssize(rows)}));
    });
    for (Tables* tables : {&there, &away}) {
      touch(tables->parameters, batch);
      read_touched(tables->parameters);
    }
    EXPECT_TRUE(asked.empty());
    const auto values_at = [&](Tables& tables, int64_t begin, int64_t end) {
      const Tensor places = tables.touched().places(batch.slice(0, begin, end).to_contiguous());
      return embedding(tables.touched().values(), places);
    };
    EXPECT_TRUE(test::same_bits(values_at(away, 0, 10), values_at(there, 0, 10)));
    const size_t first = asked.size();
    EXPECT_EQ(first, grows ? 5u : 10u) << "new ids have no rows yet";
    EXPECT_TRUE(test::same_bits(values_at(away, 0, kSamples), values_at(there, 0, kSamples)));
    EXPECT_TRUE(test::same_bits(values_at(away, 0, kSamples), values_at(there, 0, kSamples)));
    std::sort(asked.begin(), asked.end());
    EXPECT_EQ(std::unique(asked.begin(), asked.end()), asked.end()) << "a row is asked for once";
    EXPECT_GT(asked.size(), first);
    EXPECT_TRUE(test::same_bits(away.touched().lookup(away.parameters.list[0].var.value(), others),
                                there.touched().lookup(there.table(), others)));
  }
}

TEST(SlicedTables, AnUpdateMayGiveAllRows) {
  Tables tables(false);
  TouchedRows& touched = tables.touched();
  EXPECT_FALSE(touched.updated().defined());
  touch(tables.parameters, batch_of(0));
  touched.updates_all();
  commit_touched(tables.parameters);
  EXPECT_FALSE(touched.updated().defined());
  touch(tables.parameters, batch_of(1));
  commit_touched(tables.parameters);
  EXPECT_EQ(touched.updated().numel(), touched.rows().numel());
  touched.forget_updated();
  EXPECT_FALSE(touched.updated().defined());
}

}  // namespace
}  // namespace elinvar
