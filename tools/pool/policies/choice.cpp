#include "tools/pool/policies/choice.h"

#include <coin/Cbc_C_Interface.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace elinvar::pool {
namespace {

using Groups = std::vector<std::vector<Choice>>;

// Returns an upper bound of all selections' utility by Lagrangian relaxation: each capacity has a price, and each group
// chooses for itself. The prices follow the excess demand with Polyak's step length, towards the utility known to be
// possible.
double relaxed_bound(const Groups& groups, const std::vector<double>& capacities, double possible, double gap) {
  constexpr int kMostRounds = 100;
  std::vector<double> prices(capacities.size(), 0);
  double best = std::numeric_limits<double>::infinity(), length = 1;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<double> excess(capacities.size());
    double bound = 0;
    for (size_t k = 0; k < capacities.size(); ++k) bound += prices[k] * capacities[k], excess[k] = -capacities[k];
    for (const std::vector<Choice>& group : groups) {
      const Choice* chosen = nullptr;
      double most = 0;
      for (const Choice& choice : group) {
        double net = choice.utility;
        for (const auto& [k, amount] : choice.uses) net -= prices[k] * amount;
        if (!chosen || net > most) chosen = &choice, most = net;
      }
      bound += most;
      for (const auto& [k, amount] : chosen->uses) excess[k] += amount;
    }
    length *= bound < best ? 1 : 0.9;
    best = std::min(best, bound);
    double square = 0;
    for (size_t k = 0; k < capacities.size(); ++k) {
      if (prices[k] <= 0 && excess[k] < 0) excess[k] = 0;
      square += excess[k] * excess[k];
    }
    if (square == 0 || best - possible <= gap * std::abs(best)) break;
    for (size_t k = 0; k < capacities.size(); ++k)
      prices[k] = std::max(0.0, prices[k] + length * (bound - possible) / square * excess[k]);
  }
  return best;
}

Chosen selection(const Groups& groups, std::vector<size_t> of, double bound) {
  Chosen chosen{std::move(of), 0, bound};
  for (size_t g = 0; g < groups.size(); ++g) chosen.utility += groups[g][chosen.of[g]].utility;
  chosen.bound = std::max(bound, chosen.utility);
  return chosen;
}

}  // namespace

std::optional<Chosen> choose(const std::vector<std::vector<Choice>>& groups, const std::vector<double>& capacities,
                             const std::vector<size_t>& start, const Limits& limits) {
  double bound = std::numeric_limits<double>::infinity();
  if (!start.empty()) {
    const double possible = selection(groups, start, 0).utility;
    bound = relaxed_bound(groups, capacities, possible, limits.gap);
    if (bound - possible <= limits.gap * std::abs(bound)) return selection(groups, start, bound);
  }
  // There is a column for each choice, which is 1 if it is taken. The rows are the groups (exactly one choice each),
  // then the capacities.
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
      costs.push_back(-choice.utility);
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
  // These features are meant for much harder programs; here they take longer than the search does without them.
  for (const char* idle : {"preprocess", "cuts", "heuristicsOnOff"}) Cbc_setParameter(model.get(), idle, "off");
  Cbc_setParameter(model.get(), "timeMode", "elapsed");
  Cbc_setParameter(model.get(), "sec", fmt::format("{}", limits.seconds).c_str());
  Cbc_setParameter(model.get(), "maxNodes", fmt::format("{}", limits.nodes).c_str());
  Cbc_setParameter(model.get(), "ratioGap", fmt::format("{}", limits.gap).c_str());
  Cbc_solve(model.get());

  const double* solution = Cbc_getColSolution(model.get());
  if (Cbc_isProvenInfeasible(model.get()) || Cbc_numberSavedSolutions(model.get()) == 0 || !solution) return {};
  std::vector<size_t> of;
  std::vector<double> used(capacities.size(), 0);
  for (size_t g = 0, column = 0; g < groups.size(); column += groups[g++].size()) {
    const double* values_of = solution + column;
    of.push_back(static_cast<size_t>(std::max_element(values_of, values_of + groups[g].size()) - values_of));
    for (const auto& [capacity, amount] : groups[g][of.back()].uses) used[capacity] += amount;
  }
  for (size_t k = 0; k < capacities.size(); ++k)
    if (used[k] > capacities[k] * (1 + 1e-9) + 1e-9) return {};
  return selection(groups, std::move(of), std::min(bound, -Cbc_getBestPossibleObjValue(model.get())));
}

}  // namespace elinvar::pool
