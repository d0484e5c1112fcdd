#include "tools/trace/trace_file.h"

#include <algorithm>
#include <sstream>

#include "elastic/ledger/digest_file.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"
#include "tensor/state.h"

namespace elinvar {

using OrderedJson = nlohmann::ordered_json;

namespace {

OrderedJson to_json(const Shape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

Shape shape_from(const OrderedJson& json) {
  const auto extents = json.get<std::vector<int64_t>>();
  check(extents.size() <= static_cast<size_t>(Shape::kMaxDims), "a shape of {} extents", extents.size());
  return Shape(extents);
}

OrderedJson to_json(const std::vector<TracedValue>& values) {
  OrderedJson json = OrderedJson::array();
  for (const TracedValue& value : values) json.push_back(to_json(value));
  return json;
}

std::vector<TracedValue> values_from(const OrderedJson& json) {
  std::vector<TracedValue> values;
  for (const OrderedJson& value : json) values.push_back(traced_value_from(value));
  return values;
}

// Each of these returns the name of the first value that differs in form, content or number.
std::optional<std::string> other_form(const std::vector<TracedValue>& a, const std::vector<TracedValue>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!a[i].same_form(b[i])) return a[i].name;
  if (a.size() != b.size()) return "";
  return std::nullopt;
}

std::optional<std::string> other_tensor(const std::vector<TracedValue>& a, const std::vector<TracedValue>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].digest != b[i].digest || (!a[i].is_tensor && a[i].number != b[i].number)) return a[i].name;
  return std::nullopt;
}

std::optional<std::string> other_number(const std::vector<TracedValue>& a, const std::vector<TracedValue>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!a[i].is_tensor && !b[i].is_tensor && a[i].name == b[i].name && a[i].number != b[i].number) return a[i].name;
  return std::nullopt;
}

}  // namespace

bool TracedValue::same_form(const TracedValue& other) const {
  return name == other.name && is_tensor == other.is_tensor && dtype == other.dtype && shape == other.shape &&
         digest.empty() == other.digest.empty();
}

std::string TracedValue::text() const {
  if (!is_tensor) return fmt::format("{} = {}", name, number);
  if (!dtype) return name + " absent";
  return fmt::format("{} {} {}", name, name_of(*dtype), to_string(shape));
}

std::vector<TracedValue> described(const TraceValues& values) {
  std::vector<TracedValue> all;
  for (const TraceValue& value : values) {
    TracedValue& d = all.emplace_back(TracedValue{.name = value.name, .number = value.number});
    d.is_tensor = value.kind != TraceValue::Kind::number;
    if (!value.tensor.defined()) continue;
    d.dtype = value.tensor.dtype();
    d.shape = value.tensor.shape();
    d.strides = value.tensor.contiguous() ? Shape() : value.tensor.strides();
    if (value.kind == TraceValue::Kind::tensor) d.digest = digest(value.tensor).hex();
  }
  return all;
}

OrderedJson to_json(const TracedValue& value) {
  OrderedJson json = {{"name", value.name}};
  if (!value.is_tensor) json["value"] = value.number;
  if (!value.dtype) return json;
  json["dtype"] = name_of(*value.dtype);
  json["shape"] = to_json(value.shape);
  if (value.strides.ndim() > 0) json["strides"] = to_json(value.strides);
  if (!value.digest.empty()) json["digest"] = value.digest;
  return json;
}

TracedValue traced_value_from(const OrderedJson& json) {
  TracedValue value{.name = json.at("name").get<std::string>()};
  value.is_tensor = !json.contains("value");
  if (!value.is_tensor) value.number = json["value"].get<std::string>();
  if (!json.contains("dtype")) return value;
  value.dtype = dtype_from(json["dtype"].get<std::string>());
  value.shape = shape_from(json.at("shape"));
  if (json.contains("strides")) value.strides = shape_from(json["strides"]);
  value.digest = json.value("digest", "");
  return value;
}

void write_trace(const std::filesystem::path& path, const Trace& trace) {
  std::string text = trace.header.dump() + "\n";
  for (const LedgerLine& facts : trace.facts) text += facts.text() + "\n";
  for (size_t i = 0; i < trace.ops.size(); ++i) {
    const TracedOp& op = trace.ops[i];
    text += OrderedJson{{"op", i},
                        {"phase", op.phase},
                        {"name", op.name},
                        {"arguments", to_json(op.arguments)},
                        {"results", to_json(op.results)}}
                .dump() +
            "\n";
  }
  replace_file(path, text);
}

Trace read_trace(const std::filesystem::path& path) {
  std::istringstream lines(read_file(path));
  Trace trace;
  size_t number = 0;
  try {
    for (std::string line; std::getline(lines, line); ++number) {
      const OrderedJson json = parse_json(line);
      if (number == 0) {
        if (json.at("trace") != kTraceVersion)
          fail("it is of version {}, this program reads {}", json["trace"].dump(), kTraceVersion);
        trace.header = json;
      } else if (!json.contains("op")) {
        trace.facts.push_back(LedgerLine::parse(line));
      } else {
        trace.ops.push_back({.phase = json.at("phase").get<std::string>(),
                             .name = json.at("name").get<std::string>(),
                             .arguments = values_from(json.at("arguments")),
                             .results = values_from(json.at("results"))});
      }
    }
  } catch (const std::exception& error) {
    fail("{}, line {}: {}", path.string(), number + 1, reason_of(error));
  }
  return trace;
}

std::vector<std::string> known_as(const Trace& a, const std::string& digest_a, const Trace& b,
                                  const std::string& digest_b) {
  const auto names_in = [](const Trace& trace, const std::string& digest) {
    const OrderedJson names = trace.header.value("names", OrderedJson::object()).value(digest, OrderedJson::array());
    return names.get<std::vector<std::string>>();
  };
  const std::vector<std::string> ours = names_in(a, digest_a), theirs = names_in(b, digest_b);
  std::vector<std::string> both;
  for (const std::string& name : ours)
    if (std::find(theirs.begin(), theirs.end(), name) != theirs.end()) both.push_back(name);
  return !both.empty() ? both : !ours.empty() ? ours : theirs;
}

Parting first_parting(const Trace& a, const Trace& b) {
  using What = Parting::What;
  const size_t common = std::min(a.ops.size(), b.ops.size());
  for (size_t i = 0; i < common; ++i) {
    const TracedOp &p = a.ops[i], &q = b.ops[i];
    if (p.name != q.name || p.phase != q.phase) return {What::program, i};
    if (const auto number = other_number(p.arguments, q.arguments)) return {What::number, i, *number};
    if (const auto form = other_form(p.arguments, q.arguments)) return {What::program, i, *form};
    if (const auto tensor = other_tensor(p.arguments, q.arguments)) return {What::argument, i, *tensor};
    if (const auto form = other_form(p.results, q.results)) return {What::op, i, *form};
    if (const auto result = other_tensor(p.results, q.results)) return {What::op, i, *result};
  }
  if (a.ops.size() != b.ops.size()) return {What::program, common};
  return {};
}

}  // namespace elinvar
