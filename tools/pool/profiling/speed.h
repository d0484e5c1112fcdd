#pragma once
// A model of a job's speed on any workers, fitted to its measurements.
//
// A step with n workers takes
//     t = a + B + c (n - 1)/n + d (n - 1)
// a: the update, reading, and all else that each worker does in full. B: the time of the slowest worker's virtual
// ranks. With workers of one kind and shape, B = b * ceil(V/n)/V, where b is the time of all V virtual ranks on one
// worker; with several kinds see tools/pool/profiling/heterogeneous_split.h. c: the bytes of the reduction; a worker
// sends and receives (n - 1)/n of a state's size. d: its messages, one to each other worker. All of a, b, c, d are
// non-negative (least_squares.h), so that the curve stays plausible far from the measurements: it falls with b/n and
// finally rises with d.
//
// Measurements are weighted by their duration; errors are relative. A prior holds what is not measured: a similar job's
// coefficients if there is one, else a curve typical of most jobs, with wide errors. So a job without measurements has
// a prediction, too, and it says how uncertain it is: the error of a prediction follows from the covariance of the
// fitted coefficients. For an allocation and shape that was measured, the model returns the measurement.
#include <set>
#include <span>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

class FittedSpeed : public Speed {
 public:
  // `batch`: samples per step. `similar`: the model of an earlier job with the same network on the same kinds.
  FittedSpeed(int virtual_ranks, double batch, std::span<const Measurement> measured,
              const FittedSpeed* similar = nullptr);

  Rate rate(const Allocation& workers, const WorkerShape& shape) const override;

  // Returns the model's rate even if a measurement is known.
  Rate predicted(const Allocation& workers, const WorkerShape& shape) const;

  struct Group {  // the workers that share a coefficient b
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
  // Returns the factors in the sum above: 1, (n - 1)/n, n - 1, and each group's share of its b.
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
  // Groups that ran out of memory. The number of workers makes no difference: a worker computes one virtual rank at a
  // time.
  std::set<Group> starved_;
  struct Seen {
    double seconds = 0, samples = 0;
  };
  std::map<std::pair<Allocation, WorkerShape>, Seen> seen_;
};

// Default factors: recomputation makes a step longer by kRecomputation, and w slots make a worker w times as fast.
constexpr double kRecomputation = 1.3;

constexpr double kUnknown = 1;  // the relative error of a rate of which nothing is known

}  // namespace elinvar::pool
