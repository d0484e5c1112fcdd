#include "tools/pool/speed.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"
#include "tools/pool/mixing.h"

namespace elinvar::pool {
namespace {

constexpr size_t kShared = 3;  // a, c, d

// Parts of the time of all leaves that a, c and d are of a usual job, and how far off that may be.
constexpr double kUsual[kShared] = {0.03, 0.05, 0.001}, kUsualError[kShared] = {0.05, 0.1, 0.005};
constexpr double kOtherGroup = 0.4;  // error of a b that was carried over from another kind or form
constexpr double kSimilar = 0.15;    // error of a similar job's coefficients

// How far off a measurement may be: steps vary, and a short look sees few of them.
double noise(double seconds) { return 0.005 + 0.04 / std::sqrt(1 + seconds); }

// By how much a group's leaves take longer than those of a worker of one slot without recomputation.
double effort(const Form& form) { return (form.recompute ? kRecomputation : 1) / form.width; }

}  // namespace

FittedSpeed::FittedSpeed(int virtual_ranks, double batch, std::span<const Measurement> measured,
                         const FittedSpeed* similar)
    : virtual_ranks_(virtual_ranks), batch_(batch) {
  check(virtual_ranks > 0 && batch > 0, "[pool] a job of {} virtual ranks and a batch of {}", virtual_ranks, batch);
  for (const Measurement& m : measured) {
    if (m.rate <= 0 && m.workers.size() == 1) starved_.insert({m.workers.begin()->first, m.form});
    if (m.seconds <= 0 || m.workers.empty()) continue;
    Seen& seen = seen_[{m.workers, m.form}];
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
  // First guesses of b, by which a mix's leaves are dealt: as if a step were nothing but its leaves.
  for (const Group& group : known) {
    if (similar && similar->coefficients_.b.count(group)) continue;
    double sum = 0, count = 0;
    for (const auto& [at, seen] : seen_) {
      if (seen.samples <= 0 || at.second != group.form || at.first.size() != 1 || !at.first.count(group.kind)) continue;
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
  for (const Group& group : groups_) scale = std::max(scale, coefficients_.b.at(group) / effort(group.form));
  if (!similar)
    coefficients_.a = kUsual[0] * scale, coefficients_.c = kUsual[1] * scale, coefficients_.d = kUsual[2] * scale;
  const size_t n = kShared + groups_.size();
  Matrix rows;
  std::vector<double> targets;
  const auto prior = [&](size_t at, double value, double error) {
    rows.emplace_back(n, 0.0);
    rows.back()[at] = 1 / error;
    targets.push_back(value / error);
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
    std::vector<double> row = terms(at.first, at.second);
    for (double& x : row) x /= error;
    rows.push_back(std::move(row));
    targets.push_back(seconds / error);
  }
  const std::vector<double> fitted = nnls(rows, targets);
  coefficients_.a = fitted[0];
  coefficients_.c = fitted[1];
  coefficients_.d = fitted[2];
  for (size_t i = 0; i < groups_.size(); ++i)
    coefficients_.b[groups_[i]] = std::max(fitted[kShared + i], 1e-3 * coefficients_.b[groups_[i]]);
  covariance_ = inverse_of_gram(rows);
}

// Of a group that was never seen: of the same kind in another form, else of any other kind (which says little).
double FittedSpeed::b_of(const Group& group) const {
  if (const auto found = coefficients_.b.find(group); found != coefficients_.b.end()) return found->second;
  double sum = 0, count = 0;
  for (const bool same_kind : {true, false}) {
    for (const auto& [other, b] : coefficients_.b) {
      if (same_kind != (other.kind == group.kind)) continue;
      sum += b / effort(other.form) * effort(group.form);
      count += 1;
    }
    if (count > 0) return sum / count;
  }
  return effort(group.form);
}

std::vector<double> FittedSpeed::terms(const Mix& mix, const Form& form) const {
  const double n = workers(mix);
  std::vector<double> row(kShared + groups_.size(), 0);
  row[0] = 1;
  row[1] = (n - 1) / n;
  row[2] = n - 1;
  std::vector<Devices> devices;
  std::vector<double> b;
  for (const auto& [kind, count] : mix) {
    b.push_back(b_of({kind, form}));
    devices.push_back({count, virtual_ranks_ / b.back()});
  }
  const Mixing dealt = mixing(virtual_ranks_, devices);
  size_t i = 0, last = 0;
  std::string slowest;
  double longest = -1;
  for (const auto& [kind, count] : mix) {
    if (const double seconds = dealt.leaves[i] * b[i] / virtual_ranks_; seconds > longest)
      longest = seconds, last = i, slowest = kind;
    ++i;
  }
  const double share = double(dealt.leaves[last]) / virtual_ranks_;
  const auto group = std::find(groups_.begin(), groups_.end(), Group{slowest, form});
  if (group != groups_.end()) {
    row[kShared + (group - groups_.begin())] = share;
  } else {  // carried over: spread over those that it comes from, so that its size is right
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

Rate FittedSpeed::predicted(const Mix& mix, const Form& form) const {
  if (mix.empty() || workers(mix) == 0) return {};
  if (starves(mix, form)) return {};
  if (groups_.empty()) {  // nothing is known: as if a step took a second on one worker, and were a usual one
    std::vector<Devices> devices;
    for (const auto& [kind, n] : mix) devices.push_back({n, virtual_ranks_ / effort(form)});
    const double n = workers(mix);
    return {
        batch_ / (kUsual[0] + kUsual[1] * (n - 1) / n + kUsual[2] * (n - 1) + mixing(virtual_ranks_, devices).seconds),
        kUnknown};
  }
  const std::vector<double> row = terms(mix, form);
  double variance = 0;
  for (size_t i = 0; i < row.size(); ++i)
    for (size_t j = 0; j < row.size(); ++j) variance += row[i] * covariance_[i][j] * row[j];
  const double seconds = total(row);
  double error = std::sqrt(std::max(0.0, variance)) / seconds;
  for (const auto& [kind, n] : mix)
    if (!coefficients_.b.count({kind, form})) error = std::max(error, kOtherGroup);
  return {batch_ / seconds, error};
}

bool FittedSpeed::starves(const Mix& mix, const Form& form) const {
  return std::any_of(mix.begin(), mix.end(), [&](const auto& of) { return starved_.contains({of.first, form}); });
}

Rate FittedSpeed::rate(const Mix& mix, const Form& form) const {
  const auto found = seen_.find({mix, form});
  if (found == seen_.end() || starves(mix, form)) return predicted(mix, form);
  const double samples = found->second.samples / found->second.seconds;
  return {samples, samples > 0 ? noise(found->second.seconds) : 0};
}

}  // namespace elinvar::pool
