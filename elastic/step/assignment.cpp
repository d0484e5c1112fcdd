#include "elastic/step/assignment.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

// Returns the taker that would finish first with one more virtual rank; the first one among equals.
size_t next_taker(std::span<const int> has, std::span<const double> speeds) {
  size_t best = 0;
  for (size_t i = 1; i < has.size(); ++i)
    if ((has[i] + 1) * speeds[best] < (has[best] + 1) * speeds[i]) best = i;
  return best;
}

void check_speeds(size_t workers, std::span<const double> speeds) {
  check(workers > 0 && speeds.size() == workers, "[assign] a speed for each of at least one worker expected");
  for (const double speed : speeds) check(speed > 0, "[assign] speeds must be positive, got {}", speed);
}

}  // namespace

int total(std::span<const Interval> intervals) {
  int sum = 0;
  for (const Interval& i : intervals) sum += i.size();
  return sum;
}

bool contains(std::span<const Interval> intervals, int vrank) {
  return std::any_of(intervals.begin(), intervals.end(),
                     [&](const Interval& i) { return i.begin <= vrank && vrank < i.end; });
}

std::vector<std::vector<Interval>> assign(int vranks, std::span<const double> speeds, int least) {
  check_speeds(speeds.size(), speeds);
  const int dealt = least * static_cast<int>(speeds.size());
  check(dealt <= vranks, "[assign] {} for each of {} workers are more than {}", least, speeds.size(), vranks);
  std::vector<int> size(speeds.size(), least);
  for (int v = dealt; v < vranks; ++v) ++size[next_taker(size, speeds)];
  std::vector<std::vector<Interval>> shares(speeds.size());
  int begin = 0;
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i] > 0) shares[i].push_back({begin, begin + size[i]});
    begin += size[i];
  }
  return shares;
}

std::vector<std::vector<Interval>> assign_orphans(int vranks, std::vector<std::vector<Interval>> kept,
                                                  std::span<const double> speeds) {
  check_speeds(kept.size(), speeds);
  std::vector<int> has(kept.size());
  std::vector<bool> taken(static_cast<size_t>(vranks));
  for (size_t i = 0; i < kept.size(); ++i) {
    has[i] = total(kept[i]);
    for (const Interval& interval : kept[i])
      for (int v = interval.begin; v < interval.end; ++v) {
        check(v >= 0 && v < vranks && !taken[static_cast<size_t>(v)], "[assign] virtual rank {} is kept twice", v);
        taken[static_cast<size_t>(v)] = true;
      }
  }
  for (int v = 0; v < vranks; ++v) {
    if (taken[static_cast<size_t>(v)]) continue;
    const size_t taker = next_taker(has, speeds);
    kept[taker].push_back({v, v + 1});
    ++has[taker];
  }
  for (std::vector<Interval>& intervals : kept) {
    std::sort(intervals.begin(), intervals.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::vector<Interval> joined;
    for (const Interval& i : intervals) {
      if (!joined.empty() && joined.back().end == i.begin) joined.back().end = i.end;
      else joined.push_back(i);
    }
    intervals = std::move(joined);
  }
  return kept;
}

double step_time(std::span<const std::vector<Interval>> shares, std::span<const double> speeds) {
  double longest = 0;
  for (size_t i = 0; i < shares.size(); ++i) longest = std::max(longest, total(shares[i]) / speeds[i]);
  return longest;
}

}  // namespace elinvar
