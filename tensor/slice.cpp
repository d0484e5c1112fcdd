#include "tensor/slice.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/numerics.h"

namespace elinvar {

Tensor view_of(const Tensor& tensor, const Slice& slice) {
  check(tensor.contiguous(), "[slice] a contiguous tensor expected, shape is {}", to_string(tensor.shape()));
  return tensor.reshape({tensor.numel()}).slice(0, slice.begin, slice.end);
}

void check_slices(std::span<const Slice> slices, std::span<const Shape> shapes) {
  std::vector<Slice> ascending(slices.begin(), slices.end());
  const auto place = [](const Slice& s) { return std::pair(s.tensor, s.begin); };
  std::sort(ascending.begin(), ascending.end(), [&](const Slice& a, const Slice& b) { return place(a) < place(b); });
  const Slice* last = nullptr;
  for (const Slice& s : ascending) {
    check(s.tensor >= 0 && static_cast<size_t>(s.tensor) < shapes.size(), "[slices] there is no tensor {} of {}",
          s.tensor, shapes.size());
    const int64_t numel = shapes[static_cast<size_t>(s.tensor)].numel();
    check(0 <= s.begin && s.begin < s.end && s.end <= numel, "[slices] tensor {} has {} elements, but not [{}, {})",
          s.tensor, numel, s.begin, s.end);
    check(s.begin % kRowSegment == 0 && (s.end % kRowSegment == 0 || s.end == numel),
          "[slices] [{}, {}) of tensor {} must begin and end at multiples of {} elements, or end where it ends, at {}",
          s.begin, s.end, s.tensor, kRowSegment, numel);
    check(last == nullptr || last->tensor < s.tensor || last->end <= s.begin,
          "[slices] [{}, {}) and [{}, {}) of tensor {} overlap", last ? last->begin : 0, last ? last->end : 0, s.begin,
          s.end, s.tensor);
    last = &s;
  }
}

SegmentLayout::SegmentLayout(std::span<const Shape> shapes) : first_{0} {
  for (const Shape& shape : shapes) first_.push_back(first_.back() + segments_of(shape.numel()));
}

int64_t SegmentLayout::first(const Slice& slice) const {
  return first_.at(static_cast<size_t>(slice.tensor)) + slice.begin / kRowSegment;
}

int64_t SegmentLayout::count(const Slice& slice) { return segments_of(slice.numel()); }

void SegmentLayout::place(std::span<const Slice> slices, std::span<const double> sums, std::span<double> all) const {
  const auto segments = static_cast<size_t>(count());
  const size_t each = segments == 0 ? 0 : all.size() / segments;
  check(all.size() == each * segments, "[slices] {} sums are not equally many for each of {} segments", all.size(),
        segments);
  size_t expected = 0;
  for (const Slice& s : slices) expected += each * static_cast<size_t>(count(s));
  check(sums.size() == expected, "[slices] {} sums of the slices' segments expected, got {}", expected, sums.size());
  for (const Slice& s : slices) {
    const size_t to = each * static_cast<size_t>(first(s)), n = each * static_cast<size_t>(count(s));
    check(to + n <= all.size(), "[slices] [{}, {}) of tensor {} is beyond its end", s.begin, s.end, s.tensor);
    std::copy_n(sums.begin(), n, all.begin() + static_cast<std::ptrdiff_t>(to));
    sums = sums.subspan(n);
  }
}

}  // namespace elinvar
