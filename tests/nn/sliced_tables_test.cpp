// Sparse tables of which each process keeps some rows: their updates have the bits of the whole update, and passes look
// up rows that lie elsewhere.
#include <gtest/gtest.h>

#include <fmt/format.h>

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

constexpr int64_t kTallRows = 6000, kTallWidth = 4, kTallSamples = 40;
constexpr int64_t kRowsOfSlice = 1024;  // of which a slice has whole segments of 4096 elements
constexpr int64_t kTallSteps = 4;

Tensor tall_numbers(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  init::uniform(0.5)(x, key);
  return x;
}

// A sparse table, which may grow, and a dense matrix.
struct TallTables {
  Parameters parameters;
  explicit TallTables(bool grows, Device device = {}) {
    const auto touched =
        std::make_shared<TouchedRows>(1, [](const Inputs& inputs) { return inputs.first.to(DType::i64); });
    const Scope scope(parameters, 1);
    (void)scope.table("table", {kTallRows, kTallWidth}, grows ? init::constant(0.0) : init::uniform(0.1), touched);
    (void)scope.parameter("matrix", {70, 90}, init::uniform(0.1));
    const auto initial = [](std::span<const int64_t> ids, Tensor& rows) { init::uniform_rows(0.1)(ids, rows, 7); };
    if (grows) touched->grow({.ids = scope.buffer("ids", {kTallRows}, -1, DType::i64), .initialise = initial});
    make_sparse(parameters, std::vector<std::string>{"table"}, kTallSamples);
    parameters.move_to(device);
  }
  TouchedRows& touched() { return *parameters.list[0].touched; }
  const Tensor& table() { return parameters.list[0].var.value(); }
};

// Rows repeat from step to step, so that their state counts.
Tensor tall_batch(int64_t step) {
  Tensor batch = Tensor::empty({kTallSamples, 1}, DType::i64);
  for (int64_t i = 0; i < kTallSamples; ++i) {
    const uint64_t word = philox(3, static_cast<uint32_t>(i % 2 == 0 ? i : 100 * step + i), 0, 0, 0).v[0];
    batch.data<int64_t>()[i] = static_cast<int64_t>(word % kTallRows);
  }
  return batch;
}

// The gradients of the table's places and of the matrix.
std::vector<Tensor> tall_gradients(const Parameters& p, int64_t step) {
  std::vector<Tensor> gradients;
  for (const Parameter& each : p.list)
    gradients.push_back(tall_numbers(each.var.grad_shape(), static_cast<uint64_t>(10 * step) + gradients.size())
                            .to(each.var.value().device()));
  return gradients;
}

OptimizerConfig config_of_tables(const std::string& kind) {
  return {.kind = "adamw", .lr = 0.1, .weight_decay = 0.01, .sparse = {"table"}, .sparse_kind = kind};
}

StateDict tall_outcome(const Parameters& parameters, const StateDict& state) {
  StateDict all;
  for (const auto& [name, tensor] : parameters.state()) all.emplace(name, tensor.to(Device{}).clone());
  for (const auto& [name, tensor] : state) all.emplace("state." + name, tensor.to(Device{}).clone());
  return all;
}

StateDict whole_tall_run(const std::string& kind, bool grows) {
  TallTables whole(grows);
  const auto optimizer = make_optimizer(config_of_tables(kind), whole.parameters);
  for (int64_t step = 0; step < kTallSteps; ++step) {
    touch(whole.parameters, tall_batch(step));
    optimizer->step(whole.parameters, tall_gradients(whole.parameters, step), 0.05, step, 0.5);
  }
  return tall_outcome(whole.parameters, optimizer->state());
}

// Slices of the table go to the processes in turn, the matrix to the last one.
std::vector<std::vector<Slice>> dealt_slices(size_t processes, size_t first) {
  std::vector<std::vector<Slice>> slices(processes);
  for (int64_t row = 0; row < kTallRows; row += kRowsOfSlice)
    slices[(first + static_cast<size_t>(row / kRowsOfSlice)) % processes].push_back(
        {0, row * kTallWidth, std::min(row + kRowsOfSlice, kTallRows) * kTallWidth});
  slices.back().push_back({1, 0, 70 * 90});
  return slices;
}

// Trains with processes of which each keeps some slices; half way they keep others.
StateDict divided_tall_run(const std::string& kind, bool grows, size_t processes, Device device = {}) {
  std::vector<std::unique_ptr<TallTables>> tables;
  std::vector<std::unique_ptr<SlicedOptimizer>> optimizers;
  for (size_t i = 0; i < processes; ++i) {
    tables.push_back(std::make_unique<TallTables>(grows, device));
    optimizers.push_back(std::make_unique<SlicedOptimizer>(config_of_tables(kind), tables[i]->parameters,
                                                           dealt_slices(processes, 0)[i]));
  }
  StateDict state;
  const auto whole = make_optimizer(config_of_tables(kind), tables[0]->parameters);
  const auto join = [&] {
    state = whole->state();
    for (const auto& optimizer : optimizers)
      for (SlotSlice& slot : optimizer->slots()) {
        Tensor place = view_of(state.at(slot.name), slot.slice);
        copy(slot.values, place);
      }
  };
  for (int64_t step = 0; step < kTallSteps; ++step) {
    if (step == kTallSteps / 2) {
      join();
      for (size_t i = 0; i < processes; ++i) {
        optimizers[i]->keep(dealt_slices(processes, 1)[i]);
        for (SlotSlice& slot : optimizers[i]->slots()) copy(view_of(state.at(slot.name), slot.slice), slot.values);
      }
    }
    for (size_t i = 0; i < processes; ++i) {
      Parameters& parameters = tables[i]->parameters;
      touch(parameters, tall_batch(step));
      const std::vector<Tensor> gradients = tall_gradients(parameters, step);
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
  return tall_outcome(tables.back()->parameters, state);
}

void expect_equal_states(const StateDict& got, const StateDict& expected, const std::string& where) {
  ASSERT_EQ(got.size(), expected.size()) << where;
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(test::same_bits(got.at(name), tensor)) << where << name;
}

TEST(SlicedTables, HaveTheBitsOfTheWholeUpdate) {
  for (const std::string& kind : sparse_kinds())
    for (const bool grows : {false, true}) {
      const StateDict expected = whole_tall_run(kind, grows);
      EXPECT_EQ(expected.count("state.table.m"), kind == "adam" || kind == "adamw");
      for (const size_t processes : {1, 3})
        expect_equal_states(divided_tall_run(kind, grows, processes), expected,
                            fmt::format("{}, {} processes, grows {}: ", kind, processes, grows));
      for (const Device device : test::other_devices())
        expect_equal_states(divided_tall_run(kind, grows, 2, device), expected,
                            kind + " on " + to_string(device) + ": ");
    }
}

// The rows of an absent table come when they are looked up, each once in a step.
TEST(SlicedTables, RowsOfAnAbsentTableAreFetched) {
  for (const bool grows : {false, true}) {
    TallTables there(grows), away(grows);
    const Tensor batch = tall_batch(1), others = tall_batch(2);
    const auto optimizer = make_optimizer(config_of_tables("adam"), there.parameters);
    touch(there.parameters, tall_batch(0));
    optimizer->step(there.parameters, tall_gradients(there.parameters, 0), 0.05, 0);
    for (size_t i = 0; grows && i < away.parameters.buffers.size(); ++i)
      copy(there.parameters.buffers[i]->value, away.parameters.buffers[i]->value);
    away.parameters.list[0].var.mutable_value() = Tensor::absent({kTallRows, kTallWidth});
    std::vector<int64_t> asked;
    away.touched().fetch_by([&](std::span<const int64_t> rows) {
      EXPECT_TRUE(std::ranges::is_sorted(rows));
      asked.insert(asked.end(), rows.begin(), rows.end());
      return embedding(there.table(), Tensor::from(rows, {std::ssize(rows)}));
    });
    for (TallTables* tables : {&there, &away}) {
      touch(tables->parameters, batch);
      read_touched(tables->parameters);
    }
    EXPECT_TRUE(asked.empty());
    const auto values_at = [&](TallTables& tables, int64_t begin, int64_t end) {
      const Tensor places = tables.touched().places(batch.slice(0, begin, end).to_contiguous());
      return embedding(tables.touched().values(), places);
    };
    EXPECT_TRUE(test::same_bits(values_at(away, 0, 10), values_at(there, 0, 10)));
    const size_t first = asked.size();
    EXPECT_EQ(first, grows ? 5u : 10u) << "new ids have no rows yet";
    EXPECT_TRUE(test::same_bits(values_at(away, 0, kTallSamples), values_at(there, 0, kTallSamples)));
    EXPECT_TRUE(test::same_bits(values_at(away, 0, kTallSamples), values_at(there, 0, kTallSamples)));
    std::sort(asked.begin(), asked.end());
    EXPECT_EQ(std::unique(asked.begin(), asked.end()), asked.end()) << "a row is asked for once";
    EXPECT_GT(asked.size(), first);
    EXPECT_TRUE(test::same_bits(away.touched().lookup(away.parameters.list[0].var.value(), others),
                                there.touched().lookup(there.table(), others)));
  }
}

TEST(SlicedTables, AnUpdateMayGiveAllRows) {
  TallTables tables(false);
  TouchedRows& touched = tables.touched();
  EXPECT_FALSE(touched.updated().defined());
  touch(tables.parameters, tall_batch(0));
  touched.updates_all();
  commit_touched(tables.parameters);
  EXPECT_FALSE(touched.updated().defined());
  touch(tables.parameters, tall_batch(1));
  commit_touched(tables.parameters);
  EXPECT_EQ(touched.updated().numel(), touched.rows().numel());
  touched.forget_updated();
  EXPECT_FALSE(touched.updated().defined());
}

}  // namespace
}  // namespace elinvar
