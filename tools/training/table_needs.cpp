#include "tools/training/table_needs.h"

#include <numeric>

#include "nn/sliced_tensors.h"
#include "nn/touched_rows.h"
#include "nn/update_rule.h"
#include "tensor/state_slice.h"

namespace elinvar {
namespace {

// For each touched row its number, its id and two places (TouchedRows); and for each row of a table that grows an entry
// of a hash map from ids to rows, with its share of the map's array.
constexpr int64_t kTouchedBytes = 4 * sizeof(int64_t), kMappedBytes = 48;

}  // namespace

std::map<int, int64_t> table_cuts(const Parameters& parameters, const OptimizerConfig& optimizer) {
  std::map<int, int64_t> cuts;
  const std::unique_ptr<UpdateRule> rule = make_table_rule(optimizer);
  for (size_t i = 0; i < parameters.list.size(); ++i) {
    if (!parameters.list[i].sparse()) continue;
    const Shape& shape = parameters.list[i].var.shape();
    const auto rows_of_chunks = [](int64_t elements) { return kChunkElements / std::gcd(kChunkElements, elements); };
    const int64_t channels = shape.numel() / shape[0], of_state = rule->slot_shape(shape).numel() / shape[0];
    cuts[static_cast<int>(i)] = std::lcm(rows_of_chunks(channels), rows_of_chunks(of_state)) * channels;
  }
  return cuts;
}

void set_parameters(MemoryNeeds& needs, const Parameters& parameters, const OptimizerConfig& optimizer) {
  constexpr int64_t kFloat = sizeof(float);
  needs.parameters = shapes_of(parameters);
  needs.gradients.clear();
  needs.names.clear();
  for (const Parameter& p : parameters.list) {
    needs.names.push_back(p.name);
    needs.gradients.push_back(p.var.grad_shape());
  }
  const std::unique_ptr<UpdateRule> rule = make_table_rule(optimizer);
  for (const auto& [i, cut] : table_cuts(parameters, optimizer)) {
    const Parameter& table = parameters.list[static_cast<size_t>(i)];
    const auto slots = static_cast<int64_t>(rule->slots().size());
    const int64_t grown = table.touched->grows() ? table.var.dim(0) * kMappedBytes : 0;
    needs.tables[i] = {
        .cut = cut,
        .state = slots * rule->slot_shape(table.var.shape()).numel() * kFloat,
        .rows = table.var.grad_shape().numel() * kFloat + table.touched->capacity() * kTouchedBytes + grown};
  }
}

}  // namespace elinvar
