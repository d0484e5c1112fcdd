// Sparse tables: their updates change the touched rows alone, with the same bits on all devices.
// tests/models/rows_golden_test.cpp compares them with PyTorch.
#include "nn/touched_rows.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/initializers.h"
#include "nn/network.h"
#include "nn/optimizer.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

constexpr int64_t kTableRows = 23, kChannels = 5, kLookups = 3, kSamples = 2;
constexpr int64_t kTableSteps = 8;

Tensor uniform_tensor(const Shape& shape, uint64_t key) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]) - 0.5);
  return x;
}

// A table and a dense matrix; the inputs are rows of the table.
Parameters table_and_matrix(bool sparse, Device device = {}) {
  Parameters p;
  const auto rows_of = [](const Inputs& inputs) { return inputs.first.to(DType::i64); };
  const Scope scope(p, 1);
  (void)scope.table(
      "table", {kTableRows, kChannels}, [](Tensor& t, uint64_t) { copy(uniform_tensor(t.shape(), 1), t); },
      std::make_shared<TouchedRows>(kLookups, rows_of));
  (void)scope.parameter("matrix", {7, 9}, [](Tensor& t, uint64_t) { copy(uniform_tensor(t.shape(), 2), t); });
  if (sparse) make_sparse(p, std::vector<std::string>{"ta*"}, kSamples);
  p.move_to(device);
  return p;
}

// The lookups of a step's batch: rows repeat, and most are not among them.
Tensor batch_of(int64_t step) {
  Tensor batch = Tensor::empty({kSamples, kLookups}, DType::i32);
  for (int64_t i = 0; i < batch.numel(); ++i)
    batch.data<int32_t>()[i] = static_cast<int32_t>((step * step + 5 * (i / 2)) % kTableRows);
  return batch;
}

std::set<int64_t> touched_in(int64_t step) {
  const Tensor batch = batch_of(step);
  return {batch.data<int32_t>(), batch.data<int32_t>() + batch.numel()};
}

// The gradients of a step: of the table as a whole, and of the matrix.
std::vector<Tensor> dense_gradients(int64_t step) {
  std::vector<Tensor> gradients = {Tensor::zeros({kTableRows, kChannels}),
                                   uniform_tensor({7, 9}, static_cast<uint64_t>(100 + step))};
  const Tensor values = uniform_tensor({kTableRows, kChannels}, static_cast<uint64_t>(200 + step));
  for (const int64_t row : touched_in(step))
    for (int64_t c = 0; c < kChannels; ++c)
      gradients[0].data<float>()[row * kChannels + c] = values.data<float>()[row * kChannels + c];
  return gradients;
}

// The same with the table's gradient in places.
std::vector<Tensor> sparse_gradients(const Parameters& p, int64_t step) {
  std::vector<Tensor> gradients = dense_gradients(step);
  Tensor places = Tensor::zeros(p.list[0].var.grad_shape());
  int64_t place = 0;
  for (const int64_t row : touched_in(step)) {
    for (int64_t c = 0; c < kChannels; ++c)
      places.data<float>()[place * kChannels + c] = gradients[0].data<float>()[row * kChannels + c];
    ++place;
  }
  gradients[0] = places;
  return gradients;
}

Tensor trained_table(const OptimizerConfig& config, bool sparse, Device device = {}, const Offload& offload = {}) {
  Parameters p = table_and_matrix(sparse, device);
  auto optimizer = make_optimizer(config, p, nullptr, offload);
  for (int64_t step = 0; step < kTableSteps; ++step) {
    touch(p, batch_of(step));
    std::vector<Tensor> gradients = sparse ? sparse_gradients(p, step) : dense_gradients(step);
    for (Tensor& g : gradients) g = g.to(device);
    optimizer->step(p, gradients, 0.1 / static_cast<double>(1 + step), step, 0.25);
    const StateDict state = optimizer->state();  // continues where it was saved
    auto next = make_optimizer(config, p, nullptr, offload);
    next->load(state);
    optimizer = std::move(next);
  }
  return p.list[0].var.value().to(Device{});
}

// A table of some rows for ids up to 10^12, whose initial values are the ids.
struct GrowingTable {
  static constexpr int64_t kMost = 6;
  Parameters parameters;
  std::shared_ptr<Buffer> ids;

  GrowingTable() {
    const Scope scope(parameters, 1);
    const auto touched =
        std::make_shared<TouchedRows>(kLookups, [](const Inputs& inputs) { return inputs.first.to(DType::i64); });
    (void)scope.table("table", {kMost, 2}, init::constant(0.0), touched);
    ids = scope.buffer("ids", {kMost}, -1, DType::i64);
    touched->grow({.ids = ids, .initialise = [](std::span<const int64_t> of, Tensor& rows) {
                     for (size_t i = 0; i < 2 * of.size(); ++i) rows.data<float>()[i] = static_cast<float>(of[i / 2]);
                   }});
    make_sparse(parameters, std::vector<std::string>{"table"}, 1);
  }
  TouchedRows& touched() { return *parameters.list[0].touched; }
  const Tensor& table() { return parameters.list[0].var.value(); }
  void begin(const std::vector<int64_t>& batch) {
    touch(parameters, Tensor::from(batch, {1, kLookups}));
    read_touched(parameters);
  }
  void update(Optimizer& optimizer) {
    optimizer.step(parameters, std::vector<Tensor>{Tensor::full({kLookups, 2}, 1.0)}, 0.5, 0);
  }
  std::vector<int64_t> assigned() const { return {ids->value.data<int64_t>(), ids->value.data<int64_t>() + kMost}; }
};

TEST(TouchedRows, AreThoseOfTheBatchInAscendingOrder) {
  Parameters p = table_and_matrix(true);
  EXPECT_EQ(p.list[0].var.grad_shape(), Shape({kSamples * kLookups, kChannels}));
  touch(p, Tensor::from(std::vector<int32_t>{9, 2, 9, 22, 0, 2}, {2, 3}));
  read_touched(p);
  TouchedRows& touched = *p.list[0].touched;
  const auto rows = touched.rows().span<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(rows.begin(), rows.end()), (std::vector<int64_t>{0, 2, 9, 22}));
  const Tensor places = touched.places(Tensor::from(std::vector<int64_t>{22, 0, 9}, {3, 1}));
  EXPECT_EQ(places.shape(), Shape({3, 1}));
  EXPECT_EQ(std::vector<int64_t>(places.data<int64_t>(), places.data<int64_t>() + 3), (std::vector<int64_t>{3, 0, 2}));
  EXPECT_EQ(test::message_of<UsageError>([&] { (void)touched.places(Tensor::from(std::vector<int64_t>{3}, {1})); }),
            "[embedding] row 3 of a sparse table is not among the 4 rows that the step touches");
}

TEST(TouchedRows, PlacesWithoutAnIdTouchNoRow) {
  const std::vector<int64_t> none(kLookups, -1);
  GrowingTable g;
  g.begin({9, -1, 2});
  const Tensor places = g.touched().places(Tensor::from(std::vector<int64_t>{-1, 9, -1}, {3}));
  EXPECT_EQ(std::vector<int64_t>(places.data<int64_t>(), places.data<int64_t>() + 3),
            (std::vector<int64_t>{-1, 1, -1}));
  EXPECT_EQ(g.touched().rows().numel(), 2);
  const OptimizerConfig sgd{.kind = "sgd", .momentum = 0.0, .sparse = {"table"}};
  g.begin(none);
  g.update(*make_optimizer(sgd, g.parameters));
  EXPECT_EQ(g.assigned(), std::vector<int64_t>(GrowingTable::kMost, -1));
  EXPECT_EQ(g.touched().lookup(g.table(), Tensor::from(none, {1, kLookups})).shape(), Shape({1, kLookups, 2}));

  std::vector<Device> devices = test::other_devices();
  devices.push_back(Device{});
  for (const Device device : devices)
    for (const std::string& kind : sparse_kinds()) {
      OptimizerConfig config{.kind = "sgd", .weight_decay = 0.01, .sparse = {"table"}, .sparse_kind = kind};
      config.clip_norm = 0.5;
      Parameters p = table_and_matrix(true, device);
      const Tensor before = p.list[0].var.value().to(Device{}).clone();
      touch(p, Tensor::full({kSamples, kLookups}, -1, DType::i32));
      read_touched(p);
      std::vector<Tensor> gradients = sparse_gradients(p, 1);
      gradients[0] = Tensor::zeros(gradients[0].shape());
      for (Tensor& gradient : gradients) gradient = gradient.to(device);
      make_optimizer(config, p)->step(p, gradients, 0.1, 1);
      EXPECT_TRUE(test::same_bits(p.list[0].var.value().to(Device{}), before)) << kind << to_string(device);
    }
}

TEST(TouchedRows, SgdHasTheBitsOfTheDenseGradient) {
  const OptimizerConfig dense{.kind = "sgd", .momentum = 0.0};
  OptimizerConfig sparse = dense;
  sparse.sparse = {"table"};
  EXPECT_TRUE(test::same_bits(trained_table(sparse, true), trained_table(dense, false)));
}

TEST(TouchedRows, OtherRowsAndTheirStateStayAsTheyAre) {
  for (const std::string& kind : sparse_kinds()) {
    const OptimizerConfig config{.kind = "sgd", .momentum = 0.9, .sparse = {"table"}, .sparse_kind = kind};
    Parameters p = table_and_matrix(true);
    const auto optimizer = make_optimizer(config, p);
    const auto whole = [&] {
      StateDict all;
      for (const auto& [name, tensor] : optimizer->state())
        if (name.starts_with("table.")) all.emplace(name, tensor.clone());
      all.emplace("table", p.list[0].var.value().clone());
      return all;
    };
    for (int64_t step = 0; step < kTableSteps; ++step) {
      const StateDict before = whole();
      EXPECT_EQ(before.size(), kind == "sgd" || kind == "rowwise_adagrad" ? 2u : 3u) << kind;
      touch(p, batch_of(step));
      optimizer->step(p, sparse_gradients(p, step), 0.1, step);
      const std::set<int64_t> touched = touched_in(step);
      for (const auto& [name, after] : whole())
        for (int64_t row = 0; row < kTableRows; ++row)
          EXPECT_EQ(test::same_bits(after.slice(0, row, row + 1), before.at(name).slice(0, row, row + 1)),
                    !touched.contains(row))
              << kind << " " << name << " row " << row << " step " << step;
    }
  }
}

TEST(TouchedRows, BitsDoNotDependOnDevicesAndOffload) {
  const test::TemporaryFolder folder;
  for (const std::string& kind : sparse_kinds()) {
    const OptimizerConfig config{
        .kind = "adam", .lr = 0.1, .weight_decay = 0.01, .sparse = {"table"}, .sparse_kind = kind, .sparse_lr = 0.03};
    const Tensor expected = trained_table(config, true);
    const Offload file{.to = Offload::To::file, .folder = folder.path()};
    EXPECT_TRUE(test::same_bits(trained_table(config, true, {}, file), expected)) << kind;
    for (const Device device : test::other_devices()) {
      EXPECT_TRUE(test::same_bits(trained_table(config, true, device), expected)) << kind << to_string(device);
      EXPECT_TRUE(test::same_bits(trained_table(config, true, device, {.to = Offload::To::host}), expected))
          << kind << to_string(device);
    }
  }
}

TEST(TouchedRows, LearningRateOfTables) {
  const OptimizerConfig faster{.kind = "sgd", .lr = 0.1, .momentum = 0.0, .sparse = {"table"}, .sparse_lr = 0.2};
  Parameters p = table_and_matrix(true), other = table_and_matrix(true);
  touch(p, batch_of(1));
  touch(other, batch_of(1));
  make_optimizer(faster, p)->step(p, sparse_gradients(p, 1), 0.05, 1);
  OptimizerConfig same = faster;
  same.sparse_lr = 0;
  make_optimizer(same, other)->step(other, sparse_gradients(other, 1), 0.1, 1);
  EXPECT_TRUE(test::same_bits(p.list[0].var.value(), other.list[0].var.value()));
  EXPECT_FALSE(test::same_bits(p.list[1].var.value(), other.list[1].var.value()));
}

TEST(TouchedRows, NewIdsGetTheNextRowsWithAnUpdate) {
  const OptimizerConfig config{.kind = "sgd", .momentum = 0.0, .sparse = {"table"}};
  GrowingTable g;
  const auto optimizer = make_optimizer(config, g.parameters);
  constexpr int64_t kFar = 1000000000000;
  g.begin({70, 30, 70});
  EXPECT_EQ(g.touched().values().data<float>()[0], 30.0f);
  EXPECT_EQ(g.assigned()[0], -1) << "a step that begins changes no state";
  g.update(*optimizer);
  EXPECT_EQ(g.assigned(), (std::vector<int64_t>{30, 70, -1, -1, -1, -1}));
  EXPECT_EQ(g.table().data<float>()[0], 29.5f);
  g.begin({kFar, 70, 5});
  const Tensor places = g.touched().places(Tensor::from(std::vector<int64_t>{5, kFar, 70}, {3}));
  EXPECT_EQ(std::vector<int64_t>(places.data<int64_t>(), places.data<int64_t>() + 3), (std::vector<int64_t>{1, 2, 0}));
  const StateDict before = g.parameters.state();
  GrowingTable other;  // goes on from the state, as a worker that joins
  other.begin({1, 2, 3});
  other.parameters.load(before);
  for (GrowingTable* table : {&g, &other}) {
    table->begin({kFar, 70, 5});
    table->update(*make_optimizer(config, table->parameters));
    EXPECT_EQ(table->assigned(), (std::vector<int64_t>{30, 70, 5, kFar, -1, -1}));
    EXPECT_EQ(table->table().data<float>()[2], 69.0f);
    EXPECT_EQ(table->table().data<float>()[4], 4.5f);
  }
  EXPECT_TRUE(test::same_bits(g.table(), other.table()));
  const Tensor looked_up = g.touched().lookup(g.table(), Tensor::from(std::vector<int64_t>{8, 70, 9}, {3}));
  EXPECT_EQ(std::vector<float>(looked_up.data<float>(), looked_up.data<float>() + 6),
            (std::vector<float>{8, 8, 69, 69, 9, 9}));
  EXPECT_EQ(test::message_of<Failure>([&] {
              g.begin({100, 101, 102});
            }),
            "a batch has 3 new categories, but 4 of the table's 6 rows are taken; the table needs more (model.rows)");
}

TEST(TouchedRows, RowsOfInitialValues) {
  for (const int64_t channels : {4, 5, 4099}) {
    const std::vector<int64_t> index = {6, 0, 3};
    for (const auto& [whole, rows] : {std::pair{init::uniform(0.3), init::uniform_rows(0.3)},
                                      std::pair{init::normal(0.2), init::normal_rows(0.2)}}) {
      Tensor all = Tensor::empty({7, channels}), some = Tensor::empty({3, channels});
      whole(all, 11);
      rows(index, some, 11);
      for (size_t i = 0; i < index.size(); ++i)
        EXPECT_TRUE(test::same_bits(some.slice(0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1),
                                    all.slice(0, index[i], index[i] + 1)))
            << channels << " channels, row " << index[i];
    }
  }
}

TEST(TouchedRows, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const std::string& pattern) {
    Parameters p = table_and_matrix(false);
    return test::message_of<UsageError>([&] { make_sparse(p, std::vector<std::string>{pattern}, 1); });
  };
  EXPECT_EQ(refusal("tabel"), "optimizer.sparse names 'tabel', which no table is called; did you mean 'table'?");
  EXPECT_EQ(refusal("*"),
            "optimizer.sparse matches 'matrix' with '*', which is not a table that is read by index alone");
  const auto setting = [](const OptimizerConfig& config) {
    return test::message_of<UsageError>([&] { check_optimizer(config); });
  };
  EXPECT_NE(setting({.kind = "lamb", .sparse = {"table"}}).find("needs the norms of whole tables"), std::string::npos);
  EXPECT_NE(setting({.sparse = {"table"}, .sparse_kind = "rowwise_adagard"}).find("did you mean 'rowwise_adagrad'?"),
            std::string::npos);
  EXPECT_NE(setting({.sparse_kind = "adam"}).find("has a meaning only with optimizer.sparse"), std::string::npos);
  EXPECT_NE(setting({.sparse_lr = 1.0}).find("has a meaning only with optimizer.sparse"), std::string::npos);
  EXPECT_NE(setting({.eps = 0.0, .sparse = {"table"}, .sparse_kind = "adam"}).find("optimizer.eps"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
