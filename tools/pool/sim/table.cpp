#include "tools/pool/sim/table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"
#include "tools/pool/profiling/heterogeneous_split.h"

namespace elinvar::pool {
namespace {

RescaleCosts costs_of(const nlohmann::json& json, const std::string& where) {
  RescaleCosts costs;
  for (const auto& [name, seconds] : kCosts) {
    const bool as_stop = seconds == &RescaleCosts::finish && !json.contains(name);
    costs.*seconds = json.at(as_stop ? "stop" : name).get<double>();
    check(costs.*seconds > 0, "{}: the cost '{}' is {}; nothing is free: expected more than 0 seconds", where, name,
          costs.*seconds);
  }
  return costs;
}

Model model_of(const std::string& name, const nlohmann::json& json, const std::string& where) {
  Model model{name, json.at("provenance"), json.at("virtual_ranks"), json.at("batch"), {}, {}, nullptr, {}};
  check(model.virtual_ranks > 0 && model.batch > 0, "{}: {} virtual ranks and a batch of {}", where,
        model.virtual_ranks, model.batch);
  model.costs = costs_of(json.at("costs"), where);
  if (const auto v = json.find("validations"); v != json.end()) {
    model.validations = {v->at("every"), v->at("samples")};
    check(model.validations.every >= 0 && model.validations.samples >= 0,
          "{}: validations every {} steps that are worth {} samples", where, model.validations.every,
          model.validations.samples);
  }
  auto speed = std::make_shared<TableSpeed>(model.virtual_ranks, model.batch);
  for (const nlohmann::json& row : json.at("rates")) {
    const WorkerShape shape{row.value("width", 1), row.value("recompute", false)};
    const int workers = row.at("workers");
    const double rate = row.at("rate");
    check(workers > 0 && rate > 0 && shape.width > 0, "{}: {} workers of {} slots with {} samples/s", where, workers,
          shape.width, rate);
    speed->add(row.at("kind"), shape, workers, rate);
    if (std::find(model.shapes.begin(), model.shapes.end(), shape) == model.shapes.end()) model.shapes.push_back(shape);
  }
  check(!model.shapes.empty(), "{}: no rates", where);
  std::sort(model.shapes.begin(), model.shapes.end());
  model.speed = std::move(speed);
  return model;
}

}  // namespace

Table parse_table(const std::string& text, const std::string& name) {
  Table table;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    for (const auto& [model, fields] : json.at("models").items())
      table[model] = model_of(model, fields, name + ", model " + model);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("{} is no table of speeds (tools/pool/sim/table.h): {}", name, error.what()));
  }
  check(!table.empty(), "{} has no models", name);
  return table;
}

Table read_table(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) fail("cannot read the table of speeds {}", path.string());
  return parse_table({std::istreambuf_iterator<char>(in), {}}, path.string());
}

void TableSpeed::add(const std::string& kind, const WorkerShape& shape, int workers, double rate) {
  rates_[{kind, shape}][workers] = rate;
}

double TableSpeed::alike(const std::string& kind, const WorkerShape& shape, int n) const {
  const auto found = rates_.find({kind, shape});
  if (found == rates_.end()) return 0;
  const std::map<int, double>& rates = found->second;
  const auto above = rates.lower_bound(n);
  if (above == rates.end()) return rates.rbegin()->second;
  if (above->first == n) return above->second;
  if (above == rates.begin()) return above->second * n / above->first;
  const auto below = std::prev(above);
  const double part = std::log(double(n) / below->first) / std::log(double(above->first) / below->first);
  return 1 / ((1 - part) / below->second + part / above->second);
}

Rate TableSpeed::rate(const Allocation& allocation, const WorkerShape& shape) const {
  if (allocation.size() == 1) return {alike(allocation.begin()->first, shape, allocation.begin()->second), 0};
  std::vector<DeviceGroup> devices;
  const int n = workers(allocation);
  for (const auto& [kind, count] : allocation) {
    devices.push_back({count, alike(kind, shape, n) / n / batch_ * virtual_ranks_});
    if (devices.back().capability <= 0) return {};
  }
  if (devices.empty()) return {};
  return {batch_ / heterogeneous_split(virtual_ranks_, devices).seconds, 0};
}

}  // namespace elinvar::pool
