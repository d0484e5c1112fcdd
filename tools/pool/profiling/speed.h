#pragma once
// The speed of a job over its workers, fitted to what was measured of it.
//
// A step with n workers takes
//     t = a + B + c (n - 1)/n + d (n - 1)
// a: the update, reading, and all else that every worker does whole. B: the leaves of the worker that is last: with
// workers of one kind and shape, b * ceil(V/n)/V, where b is the time of all V leaves on one; with several kinds, by
// tools/pool/profiling/heterogeneous_split.h. c: the bytes of the reduction, of which a worker sends and gets (n - 1)/n
// of a state's size each way. d: its messages, one for each other worker. All of a, b, c, d are non-negative
// (least_squares.h), so that far from what was measured the curve still does what a step can do: it falls with b/n, and
// in the end rises with d.
//
// Measurements are weighted by how long they took, errors are relative. What is not measured is held by a prior: a
// similar job's coefficients, if there is one, else a curve that most jobs are near to, with wide errors. So a job
// without any measurement has a prediction too, and says how uncertain it is: the error of a prediction is that of
// the fit, by the covariance of its coefficients. An allocation and shape that was measured is told as measured.
#include <set>
#include <span>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

class FittedSpeed : public Speed {
 public:
  // `batch`: samples a step. `similar`: of a job that computes the same network on the same kinds, from the history.
  FittedSpeed(int virtual_ranks, double batch, std::span<const Measurement> measured,
              const FittedSpeed* similar = nullptr);

  Rate rate(const Allocation& workers, const WorkerShape& shape) const override;

  // What the model says where a measurement is known too.
  Rate predicted(const Allocation& workers, const WorkerShape& shape) const;

  struct Group {  // what shares a coefficient b
    std::string kind;
    WorkerShape shape;
    auto operator<=>(const Group&) const = default;
  };
  struct Coefficients {  // seconds
    double a = 0, c = 0, d = 0;
    std::map<Group, double> b;
  };
  const Coefficients& coefficients() const { return coefficients_; }

 private:
  // Terms of the sum above: 1, (n - 1)/n, n - 1, and the share of its kind's b for each group.
  std::vector<double> terms(const Allocation& workers, const WorkerShape& shape) const;
  double b_of(const Group& group) const;
  bool starves(const Allocation& workers, const WorkerShape& shape) const;
  double total(const std::vector<double>& terms) const;

  int virtual_ranks_;
  double batch_;
  Coefficients coefficients_;
  std::vector<Group> groups_;
  struct Covariance;  // of a, c, d and the b of each group
  std::shared_ptr<const Covariance> covariance_;
  // What ran out of memory. It does so again, with more workers or fewer: a worker's leaves are done one after another.
  std::set<Group> starved_;
  struct Seen {
    double seconds = 0, samples = 0;
  };
  std::map<std::pair<Allocation, WorkerShape>, Seen> seen_;
};

// A step with recomputation is longer by so much, and a worker of w slots faster by w, where nothing better is known.
constexpr double kRecomputation = 1.3;

constexpr double kUnknown = 1;  // the error of a rate of which nothing is known

}  // namespace elinvar::pool
