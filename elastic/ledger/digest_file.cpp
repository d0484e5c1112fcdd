#include "elastic/ledger/digest_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "elastic/ledger/sealed_line.h"
#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tensor/digest_tree.h"
#include "tensor/state_slice.h"

namespace elinvar {

using Json = nlohmann::json;

namespace {

constexpr int kDigestsVersion = 2;  // equal to the ledger's version
constexpr const char* kWithoutIt = "move the file away to go on without it";

template <class T, class F>
T parsed(const std::string& text, const char* what, F read) {
  try {
    return read(unsealed(text));
  } catch (const std::exception& error) {
    fail("[digests] malformed {} '{}': {}", what, text.substr(0, 200), reason_of(error));
  }
}

}  // namespace

DType dtype_from(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i32, DType::i64, DType::u8})
    if (name == name_of(dtype)) return dtype;
  check(false, "[digests] there is no type '{}'", name);
  return {};
}

int64_t TensorLayout::numel() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

int64_t TensorLayout::element_bytes() const { return size_of(dtype_from(dtype)); }

int64_t TensorLayout::chunks() const { return (numel() * element_bytes() + kDigestChunkBytes - 1) / kDigestChunkBytes; }

TensorLayout layout_of(const std::string& name, const Tensor& tensor) {
  return {name, name_of(tensor.dtype()), {tensor.shape().begin(), tensor.shape().end()}};
}

Json to_json(const std::vector<TensorLayout>& layout) {
  Json json = Json::array();
  for (const TensorLayout& t : layout) json.push_back({t.name, t.dtype, t.shape});
  return json;
}

std::vector<TensorLayout> layout_from(const Json& json) {
  std::vector<TensorLayout> layout;
  for (const Json& t : json) {
    layout.push_back({t.at(0).get<std::string>(), t.at(1).get<std::string>(), t.at(2).get<std::vector<int64_t>>()});
    (void)dtype_from(layout.back().dtype);
    (void)whole_shape(layout.back().shape);
  }
  return layout;
}

std::string DigestHeader::text() const {
  return sealed(fmt::format(R"({{"digests":{},"tensors_every":{},"chunk_bytes":{},"gradient":{},"state":{}}})",
                            kDigestsVersion, tensors_every, kDigestChunkBytes, to_json(gradient).dump(),
                            to_json(state).dump()));
}

DigestHeader DigestHeader::parse(const std::string& text) {
  return parsed<DigestHeader>(text, "header", [](const Json& json) {
    if (json.at("digests") != kDigestsVersion)
      fail("its version is {}, and this program reads {}", json["digests"].dump(), kDigestsVersion);
    if (json.at("chunk_bytes") != kDigestChunkBytes) fail("its chunks have another size");
    return DigestHeader{.tensors_every = json.at("tensors_every").get<int64_t>(),
                        .gradient = layout_from(json.at("gradient")),
                        .state = layout_from(json.at("state"))};
  });
}

std::string DigestLine::text() const {
  std::string text = fmt::format(R"({{"step":{})", step);
  const auto add = [&](const char* name, const std::string& digests) {
    if (!digests.empty()) text += fmt::format(R"(,"{}":"{}")", name, digests);
  };
  add("batches", batches);
  add("losses", losses);
  std::string named;
  for (const auto& [vrank, leaf] : leaves)
    named += fmt::format(R"({}"{}":"{}")", named.empty() ? "" : ",", vrank, leaf);
  if (!named.empty()) text += fmt::format(R"(,"leaves":{{{}}})", named);
  add("gradient", gradient);
  add("state", state.tensors);
  add("chunks", state.chunks);
  return sealed(text + "}");
}

DigestLine DigestLine::parse(const std::string& text) {
  return parsed<DigestLine>(text, "line", [](const Json& json) {
    DigestLine line{.step = json.at("step").get<int64_t>(),
                    .batches = json.value("batches", ""),
                    .losses = json.value("losses", ""),
                    .gradient = json.value("gradient", ""),
                    .state = {json.value("state", ""), json.value("chunks", "")}};
    if (json.contains("leaves"))
      for (const auto& [vrank, leaf] : json["leaves"].items())
        line.leaves.emplace(std::stoi(vrank), leaf.get<std::string>());
    return line;
  });
}

std::string DigestLine::fault(int64_t step, std::string_view text) {
  const std::string fault = fault_of_seal(text);
  const bool of_step = text.starts_with(fmt::format(R"({{"step":{},)", step));
  return !fault.empty() ? fault : of_step ? "" : fmt::format("it is not of step {}", step);
}

DigestFile::DigestFile(const std::filesystem::path& directory, const Ledger& ledger)
    : file_(directory / "digests.jsonl") {
  const std::vector<std::string> lines = file_.lines();
  size_t kept = 0;
  try {
    for (const std::string& line : lines) {
      if (kept == 0) {
        tensors_every_ = DigestHeader::parse(line).tensors_every;
        header_ = line;
      } else {
        const int64_t step = DigestLine::parse(line).step;
        if (step > ledger.length()) break;
        if (step <= last_) fail("it is of step {}, and the line before it of step {}", step, last_);
        if (first_ == 0) first_ = step;
        else if (const auto missing = missing_between(ledger, last_, step))
          fail("before it the line of step {} is missing", *missing);
        last_ = step;
      }
      ++kept;
    }
  } catch (const Failure& fault) {
    fail("[digests] {}, line {}: {}; {}", file_.path().string(), kept + 1, fault.what(), kWithoutIt);
  }
  if (kept < lines.size()) kept_ = kept;
}

// Returns the first step in (before, after) that should have a line.
std::optional<int64_t> DigestFile::missing_between(const Ledger& ledger, int64_t before, int64_t after) const {
  for (int64_t step = before + 1; step < after; ++step)
    if (due(step, tensors_every_) || ledger.has_state(step)) return step;
  return std::nullopt;
}

bool DigestFile::begins_late(const Ledger& ledger, int64_t step) const {
  return missing_between(ledger, 0, first_ > 0 ? std::min(first_, step + 1) : step + 1).has_value();
}

void DigestFile::check_reaches(const Ledger& ledger, int64_t step) const {
  if (last_ == 0) return;
  if (const auto missing = missing_between(ledger, last_, step + 1))
    fail("[digests] {} ends before the line of step {}, which the run has passed; {}", file_.path().string(), *missing,
         kWithoutIt);
}

void DigestFile::begin(const DigestHeader& header) {
  const std::string text = header.text();
  if (header_ == text) {
    if (const auto kept = std::exchange(kept_, std::nullopt)) file_.keep(*kept);
    return;
  }
  check(last_ == 0, "[digests] {} began with other tensors than this run has; --run-dir chooses another place",
        file_.path().string());
  kept_.reset();
  file_.keep(0);
  file_.append(text);
  file_.write();
  header_ = text;
  tensors_every_ = header.tensors_every;
}

void DigestFile::record(int64_t step, const std::string& line) {
  if (step <= last_) return;
  file_.append(line);
  last_ = step;
}

}  // namespace elinvar
