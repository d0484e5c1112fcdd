#include "tools/pool/profiling/speed.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tools/pool/profiling/heterogeneous_split.h"
#include "tools/pool/profiling/least_squares.h"

namespace elinvar::pool {
namespace {

constexpr size_t kShared = 3;  // a, c, d

// The usual a, c and d, as fractions of the time of all virtual ranks, and their standard errors.
constexpr double kUsual[kShared] = {0.03, 0.05, 0.001}, kUsualError[kShared] = {0.05, 0.1, 0.005};
constexpr double kOtherGroup = 0.4;  // relative error of a b carried over from another kind or shape
constexpr double kSimilar = 0.15;    // relative error of a similar job's coefficients

// The relative error of a measurement: steps vary, and a short one covers few of them.
double noise(double seconds) { return 0.005 + 0.04 / std::sqrt(1 + seconds); }

// How much longer a group's virtual ranks take than those of a worker of one slot without recomputation.
double effort(const WorkerShape& shape) { return (shape.recompute ? kRecomputation : 1) / shape.width; }

}  // namespace

struct FittedSpeed::Covariance {
  Eigen::MatrixXd matrix;
};

FittedSpeed::FittedSpeed(int virtual_ranks, double batch, std::span<const Measurement> measured,
                         const FittedSpeed* similar)
    : virtual_ranks_(virtual_ranks), batch_(batch) {
  check(virtual_ranks > 0 && batch > 0, "[pool] a job of {} virtual ranks and a batch of {}", virtual_ranks, batch);
  for (const Measurement& m : measured) {
    if (m.rate <= 0 && m.workers.size() == 1) starved_.insert({m.workers.begin()->first, m.shape});
    if (m.seconds <= 0 || m.workers.empty()) continue;
    Seen& seen = seen_[{m.workers, m.shape}];
    seen.seconds += m.seconds;
    seen.samples += m.seconds * m.rate;
  }
  if (similar) {
    coefficients_ = similar->coefficients_;
    starved_.insert(similar->starved_.begin(), similar->starved_.end());
  }
  std::vector<Group> known;
  for (const auto& [at, seen] : seen_) {
    if (seen.samples <= 0) continue;
    for (const auto& [kind, n] : at.first)
      if (const Group group{kind, at.second}; std::find(known.begin(), known.end(), group) == known.end())
        known.push_back(group);
  }
  // First guesses of b, needed to split virtual ranks: as if a step consisted of nothing but these and a usual
  // overhead.
  for (const Group& group : known) {
    if (similar && similar->coefficients_.b.count(group)) continue;
    double sum = 0, count = 0;
    for (const auto& [at, seen] : seen_) {
      if (seen.samples <= 0 || at.second != group.shape || at.first.size() != 1 || !at.first.count(group.kind))
        continue;
      const int n = at.first.at(group.kind);
      const double share = std::ceil(double(virtual_ranks_) / n) / virtual_ranks_;
      sum += batch_ * seen.seconds / seen.samples / share / (1 + 0.05 / share);
      count += 1;
    }
    if (count > 0) coefficients_.b[group] = sum / count;
  }
  for (const Group& group : known)
    if (!coefficients_.b.count(group)) coefficients_.b[group] = b_of(group);
  for (const auto& [group, b] : coefficients_.b) groups_.push_back(group);
  if (groups_.empty()) return;

  double scale = 0;
  for (const Group& group : groups_) scale = std::max(scale, coefficients_.b.at(group) / effort(group.shape));
  if (!similar)
    coefficients_.a = kUsual[0] * scale, coefficients_.c = kUsual[1] * scale, coefficients_.d = kUsual[2] * scale;
  // Each equation is divided by its error.
  const auto n = static_cast<Eigen::Index>(kShared + groups_.size());
  const auto measurements =
      std::count_if(seen_.begin(), seen_.end(), [](const auto& seen) { return seen.second.samples > 0; });
  Eigen::MatrixXd rows = Eigen::MatrixXd::Zero(n + measurements, n);
  Eigen::VectorXd targets(n + measurements);
  Eigen::Index last = 0;
  const auto prior = [&](size_t at, double value, double error) {
    rows(last, static_cast<Eigen::Index>(at)) = 1 / error;
    targets(last++) = value / error;
  };
  const double shared[kShared] = {coefficients_.a, coefficients_.c, coefficients_.d};
  for (size_t i = 0; i < kShared; ++i)
    prior(i, shared[i],
          similar ? std::max(kSimilar * shared[i], 0.1 * kUsualError[i] * scale) : kUsualError[i] * scale);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const double b = coefficients_.b.at(groups_[i]);
    prior(kShared + i, b, b * (similar ? kSimilar : kOtherGroup));
  }
  for (const auto& [at, seen] : seen_) {
    if (seen.samples <= 0) continue;
    const double seconds = batch_ * seen.seconds / seen.samples, error = seconds * noise(seen.seconds);
    const std::vector<double> row = terms(at.first, at.second);
    rows.row(last) = Eigen::Map<const Eigen::RowVectorXd>(row.data(), n) / error;
    targets(last++) = seconds / error;
  }
  const Eigen::VectorXd fitted = nonnegative_least_squares(rows, targets);
  coefficients_.a = fitted(0);
  coefficients_.c = fitted(1);
  coefficients_.d = fitted(2);
  for (size_t i = 0; i < groups_.size(); ++i)
    coefficients_.b[groups_[i]] =
        std::max(fitted(static_cast<Eigen::Index>(kShared + i)), 1e-3 * coefficients_.b[groups_[i]]);
  covariance_ = std::make_shared<const Covariance>(Covariance{inverse_of_gram(rows)});
}

// Estimates the b of a group that was never measured from the same kind in other shapes, else from other kinds, which
// is inaccurate.
double FittedSpeed::b_of(const Group& group) const {
  if (const auto found = coefficients_.b.find(group); found != coefficients_.b.end()) return found->second;
  double sum = 0, count = 0;
  for (const bool same_kind : {true, false}) {
    for (const auto& [other, b] : coefficients_.b) {
      if (same_kind != (other.kind == group.kind)) continue;
      sum += b / effort(other.shape) * effort(group.shape);
      count += 1;
    }
    if (count > 0) return sum / count;
  }
  return effort(group.shape);
}

std::vector<double> FittedSpeed::terms(const Allocation& allocation, const WorkerShape& shape) const {
  const double n = workers(allocation);
  std::vector<double> row(kShared + groups_.size(), 0);
  row[0] = 1;
  row[1] = (n - 1) / n;
  row[2] = n - 1;
  std::vector<DeviceGroup> devices;
  std::vector<double> b;
  for (const auto& [kind, count] : allocation) {
    b.push_back(b_of({kind, shape}));
    devices.push_back({count, virtual_ranks_ / b.back()});
  }
  const HeterogeneousSplit split = heterogeneous_split(virtual_ranks_, devices);
  size_t i = 0, last = 0;
  std::string slowest;
  double longest = -1;
  for (const auto& [kind, count] : allocation) {
    if (const double seconds = split.ranks[i] * b[i] / virtual_ranks_; seconds > longest)
      longest = seconds, last = i, slowest = kind;
    ++i;
  }
  const double share = double(split.ranks[last]) / virtual_ranks_;
  const auto group = std::find(groups_.begin(), groups_.end(), Group{slowest, shape});
  if (group != groups_.end()) {
    row[kShared + (group - groups_.begin())] = share;
  } else {  // carried over: spread over its source groups so that the size is right
    double sum = 0;
    for (const Group& g : groups_) sum += coefficients_.b.at(g);
    for (size_t g = 0; g < groups_.size(); ++g) row[kShared + g] = share * b[last] / sum;
  }
  return row;
}

double FittedSpeed::total(const std::vector<double>& row) const {
  double seconds = coefficients_.a * row[0] + coefficients_.c * row[1] + coefficients_.d * row[2];
  for (size_t i = 0; i < groups_.size(); ++i) seconds += coefficients_.b.at(groups_[i]) * row[kShared + i];
  return seconds;
}

Rate FittedSpeed::predicted(const Allocation& allocation, const WorkerShape& shape) const {
  if (allocation.empty() || workers(allocation) == 0) return {};
  if (starves(allocation, shape)) return {};
  if (groups_.empty()) {  // nothing known: a usual step that takes one worker a second
    std::vector<DeviceGroup> devices;
    for (const auto& [kind, n] : allocation) devices.push_back({n, virtual_ranks_ / effort(shape)});
    const double n = workers(allocation);
    return {batch_ / (kUsual[0] + kUsual[1] * (n - 1) / n + kUsual[2] * (n - 1) +
                      heterogeneous_split(virtual_ranks_, devices).seconds),
            kUnknown};
  }
  const std::vector<double> row = terms(allocation, shape);
  const Eigen::Map<const Eigen::VectorXd> x(row.data(), static_cast<Eigen::Index>(row.size()));
  const double variance = x.dot(covariance_->matrix * x);
  const double seconds = total(row);
  double error = std::sqrt(std::max(0.0, variance)) / seconds;
  for (const auto& [kind, n] : allocation)
    if (!coefficients_.b.count({kind, shape})) error = std::max(error, kOtherGroup);
  return {batch_ / seconds, error};
}

bool FittedSpeed::starves(const Allocation& allocation, const WorkerShape& shape) const {
  return std::any_of(allocation.begin(), allocation.end(), [&](const auto& of) {
    return starved_.contains({of.first, shape});
  });
}

Rate FittedSpeed::rate(const Allocation& allocation, const WorkerShape& shape) const {
  const auto found = seen_.find({allocation, shape});
  if (found == seen_.end() || starves(allocation, shape)) return predicted(allocation, shape);
  const double samples = found->second.samples / found->second.seconds;
  return {samples, samples > 0 ? noise(found->second.seconds) : 0};
}

}  // namespace elinvar::pool
