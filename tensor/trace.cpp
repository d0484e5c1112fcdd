#include "tensor/trace.h"

#include <charconv>
#include <map>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

std::map<std::string, const AnyOp*, std::less<>>& ops() {
  static std::map<std::string, const AnyOp*, std::less<>> all;
  return all;
}

template <class T>
void parse_number(const std::string& text, T& x) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, x);
  check(error == std::errc{} && stop == end, "[trace] expected a number, got '{}'", text);
}

}  // namespace

AnyOp::AnyOp(std::string_view signature, bool named_result) {
  const size_t open = signature.find('('), close = signature.find(')');
  name_ = signature.substr(0, open);
  for (size_t at = open + 1; at < close;) {
    const size_t end = std::min(signature.find(", ", at), close);
    parameters_.emplace_back(signature.substr(at, end - at));
    at = end + 2;
  }
  constexpr std::string_view kArrow = ") -> ";
  if (signature.substr(close).starts_with(kArrow)) result_ = signature.substr(close + kArrow.size());
  invariant(named_result == !result_.empty(), "the signature of an op names its result, unless that is a struct");
  const bool fresh = ops().emplace(name_, this).second;
  invariant(fresh, "names of ops are different");
}

const std::string& AnyOp::parameter(size_t i) const {
  invariant(i < parameters_.size(), "the signature of an op names all parameters");
  return parameters_[i];
}

const AnyOp* find_op(std::string_view name) {
  const auto found = ops().find(name);
  return found == ops().end() ? nullptr : found->second;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const auto& [name, op] : ops()) names.push_back(name);
  return names;
}

namespace trace {

std::string text_of(int64_t x) { return fmt::format("{}", x); }
std::string text_of(uint64_t x) { return fmt::format("{}", x); }
std::string text_of(float x) { return fmt::format("{}", x); }
std::string text_of(double x) { return fmt::format("{}", x); }
std::string text_of(const Shape& shape) { return to_string(shape); }

void parse(const std::string& text, int64_t& x) { parse_number(text, x); }
void parse(const std::string& text, uint64_t& x) { parse_number(text, x); }
void parse(const std::string& text, float& x) { parse_number(text, x); }
void parse(const std::string& text, double& x) { parse_number(text, x); }

void parse(const std::string& text, Shape& shape) {
  shape = {};
  check(text.size() >= 2 && text.front() == '(' && text.back() == ')', "[trace] expected a shape, got '{}'", text);
  for (size_t at = 1; at + 1 < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size() - 1);
    int64_t extent = 0;
    parse(text.substr(at, end - at), extent);
    check(shape.ndim() < Shape::kMaxDims, "[trace] a shape of at most {} extents expected, got '{}'", Shape::kMaxDims,
          text);
    shape.push_back(extent);
    at = text[end] == ',' ? end + 2 : end;  // past ", "
  }
}

TraceValue& Reader::next(TraceValue::Kind kind) {
  check(at_ < values_.size(), "[trace] an argument is missing after {}", at_);
  TraceValue& value = values_[at_++];
  check(value.kind == kind, "[trace] argument {} is of another kind than the op expects", value.name);
  return value;
}

void check_range(int64_t x, int64_t first, int64_t last) {
  check(x >= first && x <= last, "[trace] a number from {} to {} expected, got {}", first, last, x);
}
void check_range(uint64_t x, uint64_t first, uint64_t last) {
  check(x >= first && x <= last, "[trace] a number from {} to {} expected, got {}", first, last, x);
}

double bytes_of(const TraceValues& values) {
  double bytes = 0;
  for (const TraceValue& v : values)
    if (v.kind == TraceValue::Kind::tensor && v.tensor.defined()) bytes += static_cast<double>(v.tensor.bytes());
  return bytes;
}

void Reader::end() const { check(at_ == values_.size(), "[trace] {} arguments too many", values_.size() - at_); }

}  // namespace trace
}  // namespace elinvar
