#include "elastic/checkpoint/part_contents.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "tensor/base/check.h"
#include "tensor/base/json.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;
using WholeShapes = std::map<std::string, Shape>;

constexpr const char* kWholeShapes = "whole_shapes";  // key of the metadata: {tensor: [extents]..}

WholeShapes parse_shapes(const std::map<std::string, std::string>& metadata) {
  WholeShapes shapes;
  const auto text = metadata.find(kWholeShapes);
  if (text == metadata.end()) return shapes;
  const Json json = parse_json(text->second);
  if (!json.is_object()) fail("the whole shapes of a part's slices are no JSON object");
  for (const auto& [tensor, extents] : json.items()) {
    const bool integers =
        extents.is_array() && std::ranges::all_of(extents, [](const Json& extent) {
          return extent.is_number_unsigned() && extent.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
        });
    if (!integers) fail("the whole shape of '{}' is malformed", tensor);
    shapes[tensor] = whole_shape(extents.get<std::vector<int64_t>>());
  }
  return shapes;
}

// Returns the slice that a tensor of a file is, by its name; null for a whole tensor.
std::optional<SliceRange> slice_of(const std::string& name, const WholeShapes& shapes) {
  const size_t bracket = name.rfind('[');
  if (bracket == std::string::npos) return std::nullopt;
  const auto whole = shapes.find(name.substr(0, bracket));
  if (whole == shapes.end()) return std::nullopt;
  SliceRange slice{whole->first, whole->second, 0, 0};
  const char *at = name.data() + bracket + 1, *end = name.data() + name.size();
  const auto [colon, no_begin] = std::from_chars(at, end, slice.begin);
  if (no_begin != std::errc{} || colon == end) return std::nullopt;
  const auto [stop, no_end] = std::from_chars(colon + 1, end, slice.end);
  if (no_end != std::errc{} || name != slice_name(slice.tensor, slice.begin, slice.end)) return std::nullopt;
  return slice;
}

}  // namespace

PartContents contents_of(const StateDict& tensors, std::span<const StateSlice> slices) {
  PartContents contents{.tensors = tensors, .metadata = {}};
  if (slices.empty()) return contents;
  WholeShapes shapes;
  Json json = Json::object();
  for (const StateSlice& slice : slices) {
    (void)range_of(slice);
    const Shape& whole = shapes.try_emplace(slice.tensor, slice.whole).first->second;
    check(whole == slice.whole, "[checkpoint] slices of '{}' have shapes {} and {}", slice.tensor, to_string(whole),
          to_string(slice.whole));
    json[slice.tensor] = std::vector<int64_t>(whole.begin(), whole.end());
  }
  for (const auto& [name, tensor] : tensors)
    check(!shapes.contains(name) && !slice_of(name, shapes), "[checkpoint] '{}' is whole and in slices", name);
  for (const StateSlice& slice : slices) {
    const std::string name = slice_name(slice.tensor, slice.begin, slice.end);
    check(contents.tensors.emplace(name, slice.values).second, "[checkpoint] {} is there twice", name);
  }
  contents.metadata[kWholeShapes] = json.dump();
  return contents;
}

std::map<std::string, StoredTensor> stored_tensors(int format, std::span<const SafetensorsFile> parts) {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::vector<SliceRange>> sliced;
  for (size_t part = 0; part < parts.size(); ++part) {
    const WholeShapes shapes = format == 1 ? WholeShapes() : parse_shapes(parts[part].metadata());
    for (const auto& [name, entry] : parts[part].tensors()) {
      const std::optional<SliceRange> slice = slice_of(name, shapes);
      if (!slice) {
        const auto [whole, first] = tensors.try_emplace(name, StoredTensor{entry.dtype, entry.shape, {}});
        if (!first) fail("tensor '{}' is there {}", name, sliced.contains(name) ? "whole and in slices" : "twice");
        whole->second.pieces.push_back({part, name, 0, entry.shape.numel()});
        continue;
      }
      check_range(*slice);
      if (entry.dtype != DType::f32 || entry.half) fail("{} is not of type float32", name);
      if (entry.shape != Shape{slice->end - slice->begin}) fail("{} has shape {}", name, to_string(entry.shape));
      sliced[slice->tensor].push_back(*slice);
      StoredTensor& whole =
          tensors.try_emplace(slice->tensor, StoredTensor{DType::f32, slice->whole, {}}).first->second;
      whole.pieces.push_back({part, name, slice->begin, slice->end});
    }
  }
  for (auto& [name, ranges] : sliced) {
    std::ranges::stable_sort(ranges, {}, &SliceRange::begin);
    StoredTensor& tensor = tensors.at(name);
    if (tensor.pieces.size() != ranges.size()) fail("tensor '{}' is there whole and in slices", name);
    check_complete(ranges);
    std::ranges::stable_sort(tensor.pieces, {}, &StoredTensor::Piece::begin);
  }
  return tensors;
}

}  // namespace elinvar
