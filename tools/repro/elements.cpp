#include "tools/repro/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <type_traits>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Maps an element to an integer so that the order of numbers is kept and +0 and -0 are equal. NaN has none.
template <class Bits, Bits kInfinity>
std::optional<int64_t> rank_of(Bits bits) {
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  const Bits magnitude = bits & kMagnitude;
  if (magnitude > kInfinity) return std::nullopt;
  return bits > kMagnitude ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

struct Kind {
  int64_t bytes;
  std::optional<int64_t> (*rank)(uint64_t bits);
  std::string (*text)(uint64_t bits);
};

template <class T>
std::string number_text(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return fmt::format("{}", value);
}

Kind kind_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return {4, [](uint64_t b) { return rank_of<uint32_t, 0x7f800000u>(static_cast<uint32_t>(b)); },
              number_text<float>};
    case DType::f64:
      return {8, [](uint64_t b) { return rank_of<uint64_t, 0x7ff0000000000000u>(b); }, number_text<double>};
    case DType::bf16:
      return {2, [](uint64_t b) { return rank_of<uint16_t, 0x7f80u>(static_cast<uint16_t>(b)); },
              [](uint64_t b) { return number_text<float>(b << 16); }};
    case DType::i32:
      return {4, [](uint64_t b) { return std::optional<int64_t>(static_cast<int32_t>(b)); }, number_text<int32_t>};
    case DType::i64:
      return {8, [](uint64_t b) { return std::optional<int64_t>(static_cast<int64_t>(b)); }, number_text<int64_t>};
    case DType::u8:
      return {1, [](uint64_t b) { return std::optional<int64_t>(static_cast<int64_t>(b)); },
              [](uint64_t b) { return std::to_string(b); }};
  }
  return {};
}

std::vector<int64_t> place_of(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    place[d] = index % shape[d];
    index /= shape[d];
  }
  return place;
}

// Names index `at` of dimension `d`.
std::string name_of_slice(size_t d, size_t dimensions, int64_t at) {
  if (dimensions == 2) return fmt::format("{} {}", d == 0 ? "row" : "column", at);
  if (dimensions == 4 && (d == 0 || d == 3)) return fmt::format("{} channel {}", d == 0 ? "output" : "input", at);
  return fmt::format("index {} of dimension {}", at, d);
}

// Collects the places that differ, in ascending order, to find their pattern.
class Places {
 public:
  explicit Places(std::vector<int64_t> shape)
      : shape_(std::move(shape)), low_(shape_.size(), INT64_MAX), high_(shape_.size(), -1) {}
  void add(int64_t index) {
    if (count_++ == 0) first_ = index;
    last_ = index;
    const std::vector<int64_t> place = place_of(index, shape_);
    for (size_t d = 0; d < shape_.size(); ++d) {
      low_[d] = std::min(low_[d], place[d]);
      high_[d] = std::max(high_[d], place[d]);
    }
  }
  std::string pattern() const {
    int64_t elements = 1, box = 1;
    for (size_t d = 0; d < shape_.size(); ++d) {
      elements *= shape_[d];
      box *= high_[d] - low_[d] + 1;
    }
    if (count_ == elements && elements > 1) return "all of it";
    if (count_ == 1) return "one element";
    std::string slices;
    for (size_t d = 0; d < shape_.size(); ++d)
      if (low_[d] == high_[d] && shape_[d] > 1)
        slices += (slices.empty() ? "" : ", ") + name_of_slice(d, shape_.size(), low_[d]);
    if (!slices.empty()) return slices;
    if (count_ > elements / 2) return "most of it";
    if (4 * box <= elements && 2 * count_ >= box) {
      std::string tile;
      for (size_t d = 0; d < shape_.size(); ++d)
        tile += fmt::format("{}{} to {}", tile.empty() ? "" : " x ", low_[d], high_[d]);
      return "a tile, " + tile;
    }
    if (4 * (last_ - first_ + 1) <= elements && 2 * count_ > last_ - first_)
      return fmt::format("a stretch, elements {} to {}", first_, last_);
    return "here and there";
  }

 private:
  std::vector<int64_t> shape_, low_, high_;
  int64_t count_ = 0, first_ = 0, last_ = 0;
};

void measure(TensorDifference& d, const Kind& kind, const Tensor& a, const Tensor& b) {
  const auto* x = static_cast<const unsigned char*>(a.raw());
  const auto* y = static_cast<const unsigned char*>(b.raw());
  Places places(d.shape);
  const auto size = static_cast<size_t>(kind.bytes);
  for (int64_t i = 0; i < d.elements; ++i) {
    const size_t at = static_cast<size_t>(i) * size;
    if (std::memcmp(x + at, y + at, size) == 0) continue;
    uint64_t bits_a = 0, bits_b = 0;
    std::memcpy(&bits_a, x + at, size);
    std::memcpy(&bits_b, y + at, size);
    const std::optional<int64_t> rank_a = kind.rank(bits_a), rank_b = kind.rank(bits_b);
    if (!rank_a && !rank_b) continue;  // NaNs with different payloads count as equal
    uint64_t ulps = 0;
    if (rank_a && rank_b)
      ulps = *rank_a > *rank_b ? static_cast<uint64_t>(*rank_a) - static_cast<uint64_t>(*rank_b)
                               : static_cast<uint64_t>(*rank_b) - static_cast<uint64_t>(*rank_a);
    if (d.differing++ == 0) {
      d.first = place_of(i, d.shape);
      d.bits_a = fmt::format("{:0{}x}", bits_a, 2 * size);
      d.bits_b = fmt::format("{:0{}x}", bits_b, 2 * size);
      d.value_a = kind.text(bits_a);
      d.value_b = kind.text(bits_b);
      d.first_ulps = ulps;
    }
    places.add(i);
    if (!rank_a || !rank_b) {
      ++d.not_numbers;
      continue;
    }
    d.most_ulps = std::max(d.most_ulps, ulps);
    ++d.histogram[static_cast<int>(std::bit_width(ulps))];
  }
  if (d.differing > 0) d.pattern = places.pattern();
}

// Returns the parameter that a tensor of the state belongs to; names are "model.<parameter>", "average.<parameter>" and
// "optimizer.<parameter>.<what>".
std::string parameter_of(const std::string& name) {
  if (name.starts_with("model.")) return name.substr(6);
  if (name.starts_with("average.")) return name.substr(8);
  if (name.starts_with("optimizer.")) return name.substr(10, name.rfind('.') - 10);
  return name;
}

// Formats a histogram: "3 x 1, 2 x 4-7, 5 x 2^17-2^18".
std::string histogram_text(const std::map<int, int64_t>& histogram) {
  constexpr int kShort = 10;
  std::string text;
  for (const auto& [digits, count] : histogram) {
    const uint64_t low = digits == 0 ? 0 : uint64_t{1} << (digits - 1), high = digits == 0 ? 0 : 2 * low - 1;
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count,
                        low == high        ? std::to_string(low)
                        : digits <= kShort ? fmt::format("{}-{}", low, high)
                                           : fmt::format("2^{}-2^{}", digits - 1, digits));
  }
  return text;
}

std::string pattern_of(const StateDifference& all) {
  if (all.tensors.empty()) return "";
  std::set<std::string> parameters;
  bool single = true;
  for (const TensorDifference& t : all.tensors) {
    parameters.insert(parameter_of(t.name));
    single = single && t.differing == 1;
  }
  if (all.tensors.size() == 1) return all.tensors[0].pattern + " of one tensor";
  if (parameters.size() == 1)
    return fmt::format("{} of one parameter and of what the optimizer keeps of it",
                       single ? "one element" : all.tensors[0].pattern);
  if (single) return fmt::format("one element of each of {} tensors", all.tensors.size());
  if (2 * all.tensors.size() > all.compared) return "everything";
  return fmt::format("{} of {} tensors", all.tensors.size(), all.compared);
}

}  // namespace

StateDifference differences(const StateDict& a, const StateDict& b) {
  StateDifference all;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.dtype() != tensor.dtype() || other->second.shape() != tensor.shape()) {
      all.unlike.push_back(name);
      continue;
    }
    ++all.compared;
    TensorDifference d{
        .name = name, .shape = {tensor.shape().begin(), tensor.shape().end()}, .elements = tensor.numel()};
    const Tensor x = tensor.to(Device{}).to_contiguous(), y = other->second.to(Device{}).to_contiguous();
    if (std::memcmp(x.raw(), y.raw(), static_cast<size_t>(x.bytes())) != 0) measure(d, kind_of(x.dtype()), x, y);
    if (d.differing > 0) all.tensors.push_back(std::move(d));
  }
  for (const auto& [name, tensor] : b)
    if (!a.contains(name)) all.unlike.push_back(name);
  all.pattern = pattern_of(all);
  return all;
}

std::string to_text(const TensorDifference& t, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string text = fmt::format("{}{}: {} of {} elements differ ({}); at [{}] {} and {}, bits {} and {}, {} ulps\n",
                                 margin, t.name, t.differing, t.elements, t.pattern, fmt::join(t.first, ", "),
                                 t.value_a, t.value_b, t.bits_a, t.bits_b, t.first_ulps);
  if (t.differing > 1) text += fmt::format("{}  elements x ulps: {}\n", margin, histogram_text(t.histogram));
  if (t.not_numbers > 0) text += fmt::format("{}  {} where one of the two is no number\n", margin, t.not_numbers);
  return text;
}

OrderedJson to_json(const StateDifference& difference) {
  OrderedJson json = {{"compared", difference.compared},
                      {"differing", difference.tensors.size()},
                      {"pattern", difference.pattern},
                      {"unlike", difference.unlike},
                      {"tensors", OrderedJson::array()}};
  for (const TensorDifference& t : difference.tensors) {
    OrderedJson histogram = OrderedJson::array();
    for (const auto& [digits, count] : t.histogram)
      histogram.push_back({{"least_ulps", digits == 0 ? 0 : uint64_t{1} << (digits - 1)}, {"elements", count}});
    json["tensors"].push_back({{"name", t.name},
                               {"shape", t.shape},
                               {"elements", t.elements},
                               {"differing", t.differing},
                               {"pattern", t.pattern},
                               {"first",
                                {{"index", t.first},
                                 {"bits", {t.bits_a, t.bits_b}},
                                 {"values", {t.value_a, t.value_b}},
                                 {"ulps", t.first_ulps}}},
                               {"most_ulps", t.most_ulps},
                               {"not_numbers", t.not_numbers},
                               {"histogram", histogram}});
  }
  return json;
}

}  // namespace elinvar
