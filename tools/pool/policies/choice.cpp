#include "tools/pool/policies/choice.h"

#include <coin/Cbc_C_Interface.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace elinvar::pool {

std::optional<Chosen> choose(const std::vector<std::vector<Choice>>& groups, const std::vector<double>& capacities,
                             const std::vector<size_t>& start, const Limits& limits) {
  // A column for each choice: 1 if it is taken. A row for each group (exactly one) and, after them, each capacity.
  std::vector<CoinBigIndex> starts{0};
  std::vector<int> rows;
  std::vector<double> values, costs;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Choice& choice : groups[g]) {
      rows.push_back(static_cast<int>(g));
      values.push_back(1);
      for (const auto& [capacity, amount] : choice.uses) {
        rows.push_back(static_cast<int>(groups.size()) + capacity);
        values.push_back(amount);
      }
      starts.push_back(static_cast<CoinBigIndex>(rows.size()));
      costs.push_back(-choice.worth);
    }
  const size_t columns = costs.size();
  std::vector<double> row_low(groups.size(), 1), row_high(groups.size(), 1);
  row_low.resize(groups.size() + capacities.size(), 0);
  row_high.insert(row_high.end(), capacities.begin(), capacities.end());
  const std::vector<double> low(columns, 0), high(columns, 1);

  const std::unique_ptr<Cbc_Model, void (*)(Cbc_Model*)> model(Cbc_newModel(), Cbc_deleteModel);
  Cbc_setLogLevel(model.get(), 0);
  Cbc_loadProblem(model.get(), static_cast<int>(columns), static_cast<int>(row_low.size()), starts.data(), rows.data(),
                  values.data(), low.data(), high.data(), costs.data(), row_low.data(), row_high.data());
  for (size_t c = 0; c < columns; ++c) Cbc_setInteger(model.get(), static_cast<int>(c));
  if (!start.empty()) {
    std::vector<int> taken;
    size_t first = 0;
    for (size_t g = 0; g < groups.size(); first += groups[g++].size())
      taken.push_back(static_cast<int>(first + start[g]));
    const std::vector<double> ones(taken.size(), 1);
    Cbc_setMIPStartI(model.get(), static_cast<int>(taken.size()), taken.data(), ones.data());
  }
  Cbc_setParameter(model.get(), "timeMode", "elapsed");
  Cbc_setParameter(model.get(), "sec", fmt::format("{}", limits.seconds).c_str());
  Cbc_setParameter(model.get(), "maxNodes", fmt::format("{}", limits.nodes).c_str());
  Cbc_setParameter(model.get(), "ratioGap", fmt::format("{}", limits.gap).c_str());
  Cbc_solve(model.get());

  const double* solution = Cbc_getColSolution(model.get());
  if (Cbc_isProvenInfeasible(model.get()) || Cbc_numberSavedSolutions(model.get()) == 0 || !solution) return {};
  Chosen chosen;
  chosen.bound = -Cbc_getBestPossibleObjValue(model.get());
  std::vector<double> used(capacities.size(), 0);
  for (size_t g = 0, column = 0; g < groups.size(); column += groups[g++].size()) {
    const double* of = solution + column;
    const size_t best = static_cast<size_t>(std::max_element(of, of + groups[g].size()) - of);
    chosen.of.push_back(best);
    chosen.worth += groups[g][best].worth;
    for (const auto& [capacity, amount] : groups[g][best].uses) used[capacity] += amount;
  }
  for (size_t k = 0; k < capacities.size(); ++k)
    if (used[k] > capacities[k] * (1 + 1e-9) + 1e-9) return {};
  chosen.bound = std::max(chosen.bound, chosen.worth);
  return chosen;
}

}  // namespace elinvar::pool
