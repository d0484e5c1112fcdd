#include "tools/trace/reproducer.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/reason.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/copy.h"
#include "tensor/safetensors.h"
#include "tools/trace/trace_file.h"

namespace elinvar {

using OrderedJson = nlohmann::ordered_json;

namespace {

constexpr const char* kVersion = "1";

OrderedJson described_json(const TraceValues& values) {
  OrderedJson json = OrderedJson::array();
  for (const TracedValue& value : described(values)) json.push_back(to_json(value));
  return json;
}

void add_tensors(const std::string& prefix, const TraceValues& values, StateDict& to) {
  for (const TraceValue& value : values)
    if (value.kind == TraceValue::Kind::tensor && value.tensor.defined()) to.emplace(prefix + value.name, value.tensor);
}

TraceValues values_from(const OrderedJson& json, const std::string& prefix, const StateDict& tensors) {
  TraceValues values;
  for (const OrderedJson& entry : json) {
    const TracedValue form = traced_value_from(entry);
    TraceValue& value = values.emplace_back(TraceValue{.name = form.name, .number = form.number});
    if (!form.is_tensor) continue;
    value.kind = TraceValue::Kind::tensor;
    if (!form.dtype) continue;
    Tensor elements;
    if (form.digest.empty()) {
      value.kind = TraceValue::Kind::place;
      elements = Tensor::zeros(form.shape, *form.dtype);
    } else {
      const auto found = tensors.find(prefix + form.name);
      if (found == tensors.end()) fail("it lacks the tensor {}{}", prefix, form.name);
      elements = found->second;
    }
    check(elements.shape() == form.shape && elements.dtype() == *form.dtype, "tensor {}{} is {} of shape {}", prefix,
          form.name, name_of(elements.dtype()), to_string(elements.shape()));
    value.tensor = form.strides.ndim() > 0 ? laid_out(elements, form.strides, Device{}) : elements;
  }
  return values;
}

}  // namespace

void write_reproducer(const std::filesystem::path& path, const Reproducer& r) {
  StateDict tensors;
  std::map<std::string, std::string> metadata = {{"reproducer", kVersion},
                                                 {"op", r.op},
                                                 {"about", r.about.dump()},
                                                 {"arguments", described_json(r.arguments).dump()}};
  add_tensors("argument.", r.arguments, tensors);
  for (size_t i = 0; i < r.sides.size(); ++i) {
    metadata[kSides[i]] =
        OrderedJson{{"about", r.sides[i].about}, {"results", described_json(r.sides[i].results)}}.dump();
    add_tensors(std::string(kSides[i]) + ".", r.sides[i].results, tensors);
  }
  remove_abandoned(path);
  const std::filesystem::path aside = unfinished_name(path);
  try {
    (void)write_safetensors(aside, tensors, metadata);
    rename_file(aside, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(aside, ignored);
    throw;
  }
}

Reproducer read_reproducer(const std::filesystem::path& path) {
  const SafetensorsContents file = read_safetensors(path);
  try {
    const auto& metadata = file.metadata;
    if (!metadata.contains("reproducer")) fail("it is none: its metadata says nothing of an op");
    if (metadata.at("reproducer") != kVersion)
      fail("it is of version {}, this program reads {}", metadata.at("reproducer"), kVersion);
    Reproducer r{.op = metadata.at("op"), .about = parse_json(metadata.at("about"))};
    r.arguments = values_from(parse_json(metadata.at("arguments")), "argument.", file.tensors);
    for (const std::string side : kSides) {
      if (!metadata.contains(side)) continue;
      const OrderedJson json = parse_json(metadata.at(side));
      r.sides.push_back({json.at("about"), values_from(json.at("results"), side + ".", file.tensors)});
    }
    return r;
  } catch (const std::exception& error) {
    fail("reproducer {} cannot be read: {}", path.string(), reason_of(error));
  }
}

TraceValues call(const Reproducer& r, Device device) {
  const AnyOp* op = find_op(r.op);
  check(op != nullptr, "this program has no op '{}'{}", r.op, spelling_hint(r.op, op_names()));
  TraceValues arguments = r.arguments;
  for (TraceValue& value : arguments)
    if (value.tensor.defined()) value.tensor = laid_out(value.tensor, value.tensor.strides(), device);
  return op->call(std::move(arguments));
}

TraceValues copied(const TraceValues& values) {
  TraceValues copies = values;
  for (TraceValue& value : copies) {
    if (!value.tensor.defined()) continue;
    const Shape strides = value.tensor.strides();
    if (value.kind == TraceValue::Kind::place) value.tensor = Tensor::zeros(value.tensor.shape(), value.tensor.dtype());
    value.tensor = laid_out(value.tensor, strides, Device{});
  }
  return copies;
}

Tensor laid_out(const Tensor& x, const Shape& strides, Device device) {
  const auto dense = [&] {
    Tensor copied = Tensor::empty(x.shape(), x.dtype(), device);
    copy(x, copied);
    return copied;
  };
  check(strides.ndim() == x.ndim(), "{} strides given for shape {}", strides.ndim(), to_string(x.shape()));
  // Allocates the dimensions that need memory, outermost first, each as long as the next outer stride requires, and
  // slices the tensor out of it.
  std::vector<int> order;
  for (int d = 0; d < x.ndim(); ++d)
    if (x.shape()[d] > 1 && strides[d] > 0) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return strides[a] > strides[b]; });
  if (order.empty() || x.numel() == 0 || order.size() == static_cast<size_t>(Shape::kMaxDims)) return dense();
  Shape extents{x.shape()[order[0]]};
  for (size_t i = 1; i < order.size(); ++i) {
    const int64_t outer = strides[order[i - 1]], inner = strides[order[i]], extent = x.shape()[order[i]];
    if (outer % inner != 0 || outer / inner < extent) return dense();
    extents.push_back(outer / inner);
  }
  extents.push_back(strides[order.back()]);
  Tensor view = Tensor::empty(extents, x.dtype(), device).select(-1, 0);
  std::vector<int> places(static_cast<size_t>(x.ndim()), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    view = view.slice(static_cast<int>(i), 0, x.shape()[order[i]]);
    places[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  Tensor elements = x;  // the first element of each repeated dimension
  for (int d = 0; d < x.ndim(); ++d) {
    if (places[static_cast<size_t>(d)] >= 0) continue;
    places[static_cast<size_t>(d)] = view.ndim();
    view = view.unsqueeze(view.ndim());
    if (x.shape()[d] > 1) elements = elements.slice(d, 0, 1);
  }
  view = view.permute(places);
  copy(elements, view);
  return view.expand(x.shape());
}

}  // namespace elinvar
