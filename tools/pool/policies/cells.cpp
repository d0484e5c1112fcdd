// Search over cells, after Crius (Xue et al.; Arena, EuroSys'26). A cell is a job with a number of slots of one kind;
// the shape remains to be chosen: here slots per worker and recomputation, in Crius stages, data and tensor
// parallelism. A cell has the utility of its best shape, weighted more if the job has less left: ending jobs soon keeps
// few of them waiting. Starting with the present allocation, the search takes the best of these moves until none gains:
//   - a job goes to another cell for which there are slots,
//   - a job is upgraded with the slots of another one that is downgraded to a smaller cell or stopped.
// The same moves admit waiting jobs. Sizes go by factors of two from a job's minimum to its maximum.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/pool/policies/admission.h"
#include "tools/pool/policies/growth.h"
#include "tools/pool/policies/policies.h"

namespace elinvar::pool {
namespace {

// A cell's utility is divided by the seconds that its job has left, to this power. 0 gets most work done, 1 ends the
// shortest job first (tools/pool/README.md compares values in between).
constexpr double kHaste = 0.25;
constexpr double kNearlyDone = 60;  // seconds; jobs with less left get no greater weight

struct Cell {
  std::string kind;  // empty: the job waits
  int slots = 0;
  Option option;
};

struct Move {
  double gain = 0;
  size_t job = 0, cell = 0;
  bool pair = false;  // `other` is downgraded to `smaller`
  size_t other = 0, smaller = 0;
};

class Search {
 public:
  explicit Search(const Pool& pool) : pool_(pool), offer_(pool), utility_(offer_) {
    for (const size_t i : admit(offer_)) restore(i);
    for (size_t i = 0; i < pool.jobs.size(); ++i) {
      haste_.push_back(std::pow(std::max(utility_.left(i), kNearlyDone), -kHaste));
      cells_.push_back(cells_of(i));
    }
  }

  Plan run() {
    const int most = 20 + 10 * static_cast<int>(pool_.jobs.size());
    int moves = 0;
    for (; moves < most; ++moves) {
      const std::optional<Move> best = best_move();
      if (!best) break;
      if (best->pair) take(best->other, best->smaller, "is downgraded to");
      take(best->job, best->cell, "goes to");
    }
    return settled(offer_, utility_,
                   fmt::format("{} moves{}", moves, moves == most ? ", and more there might be" : ""));
  }

 private:
  // Jobs start the search as they are, as far as there is room.
  void restore(size_t i) {
    const Job& job = pool_.jobs[i];
    if (job.running() && offer_.fits(i, offer_.present(i), job.shape))
      offer_.give(i, offer_.present(i), job.shape, "stays as it is");
  }

  std::vector<Cell> cells_of(size_t i) const {
    const Job& job = pool_.jobs[i];
    std::vector<Cell> cells;
    if (!utility_.can_run(i)) return cells;
    const bool in = !offer_.grant(i).allocation.empty();
    if (offer_.allowed(i, {}, job.shape) && (!in || may_wait(offer_, i)))
      cells.push_back({"", 0, hasty(i, utility_.option(i, {}, job.shape))});
    for (const std::string& kind : offer_.kinds())
      for (int slots = job.min_workers; slots <= offer_.slots(kind); slots *= 2) {
        std::optional<Option> best;
        for (Option& option : utility_.options(i, kind, slots))
          if (!best || option.utility > best->utility) best = std::move(option);
        if (best) cells.push_back({kind, slots, hasty(i, std::move(*best))});
      }
    return cells;
  }

  Option hasty(size_t i, Option option) const {
    option.utility *= haste_[i];
    return option;
  }
  double now(size_t i) const {
    return hasty(i, utility_.option(i, offer_.grant(i).allocation, offer_.grant(i).shape)).utility;
  }

  int has(size_t i, const std::string& kind) const {
    return count_of(offer_.grant(i).allocation, kind) * offer_.grant(i).shape.width;
  }

  std::optional<Move> best_move() const {
    struct Downgrade {
      double loss;
      size_t job, cell;
      int frees;
    };
    std::map<std::string, std::vector<Downgrade>> downgrades;
    std::vector<double> utility;
    for (size_t i = 0; i < cells_.size(); ++i) utility.push_back(now(i));
    for (size_t i = 0; i < cells_.size(); ++i)
      for (size_t c = 0; c < cells_[i].size(); ++c) {
        const Cell& cell = cells_[i][c];
        for (const auto& [kind, n] : offer_.grant(i).allocation) {
          const int frees = has(i, kind) - (cell.kind == kind ? cell.slots : 0);
          const bool fits = cell.kind.empty() || cell.kind == kind || cell.slots <= offer_.free(cell.kind);
          if (frees > 0 && fits) downgrades[kind].push_back({utility[i] - cell.option.utility, i, c, frees});
        }
      }
    for (auto& [kind, all] : downgrades)
      std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.loss < b.loss; });

    std::optional<Move> best;
    const auto consider = [&](const Move& move) {
      if (move.gain > 1e-6 * haste_[move.job] * pool_.horizon && (!best || move.gain > best->gain)) best = move;
    };
    for (size_t i = 0; i < cells_.size(); ++i)
      for (size_t c = 0; c < cells_[i].size(); ++c) {
        const Cell& cell = cells_[i][c];
        const double gain = cell.option.utility - utility[i];
        if (gain <= 0) continue;
        const int lacks = cell.kind.empty() ? 0 : cell.slots - offer_.free(cell.kind) - has(i, cell.kind);
        if (lacks <= 0) {
          consider({gain, i, c});
          continue;
        }
        for (const Downgrade& down : downgrades[cell.kind]) {
          if (down.loss >= gain) break;
          if (down.job == i || down.frees < lacks) continue;
          // The downgraded job must not move into slots that this job needs.
          const Cell& smaller = cells_[down.job][down.cell];
          if (!smaller.kind.empty() && smaller.kind != cell.kind && has(i, smaller.kind) > 0) continue;
          consider({gain - down.loss, i, c, true, down.job, down.cell});
          break;
        }
      }
    return best;
  }

  void take(size_t i, size_t c, const char* how) {
    const Cell& cell = cells_[i][c];
    const std::string to = cell.kind.empty() ? std::string("nothing") : text_of(cell.option.allocation);
    const std::string shape = cell.option.shape.recompute ? ", with recomputation" : "";
    offer_.give(i, cell.option.allocation, cell.option.shape, fmt::format("{} {}{}", how, to, shape));
  }

  const Pool& pool_;
  Offer offer_;
  const Utility utility_;
  std::vector<double> haste_;
  std::vector<std::vector<Cell>> cells_;
};

}  // namespace

Plan cells(const Pool& pool) { return Search(pool).run(); }

}  // namespace elinvar::pool
